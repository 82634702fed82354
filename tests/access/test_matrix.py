"""Who may do what at every address: generated from the URL table, so that a view without a rule
fails.

Each address and method has one rule: the least role that it takes. Below it a member gets 403, a
member of another project 404, and nobody the sign-in (pages) or 401 (API). At it nothing is
refused; what comes then is for other tests. An id of another project is answered like one that
does not exist.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from orchestrator.projects.models import User
from tests.access.rules import NO_OBJECT, OPEN, RULES
from tests.access.table import METHODS, Address, addresses
from tests.api.world import furnish
from tests.base import People, make_people

pytestmark = pytest.mark.django_db
ORDER = ("viewer", "editor", "admin", "operator")


class Matrix:
    def __init__(self, people: People) -> None:
        self.people = people
        self.values = furnish(people.project, people.owner)
        self.clients = {
            "nobody": Client(),
            "stranger": self.client(people.stranger),
            "viewer": self.client(people.member),
            "editor": self.client(people.editor),
            "admin": self.client(people.owner),
            "operator": self.client(User.objects.create_superuser("operator", password=None)),
        }

    @staticmethod
    def client(user: User) -> Client:
        client = Client(raise_request_exception=True)
        client.force_login(user)
        return client

    def status(self, who: str, method: str, address: Address, values: Any = None) -> int:
        """Of the answer; what the request changes is taken back."""
        url = address.url(values or self.values)
        with transaction.atomic():
            response = self.clients[who].generic(
                method,
                url,
                b"{}" if address.name.startswith("api:") else b"",
                content_type="application/json"
                if address.name.startswith("api:")
                else "application/x-www-form-urlencoded",
                headers={"If-Match": "*"},
            )
            transaction.set_rollback(True)
        if response.status_code == 302 and response["Location"].startswith(reverse("login")):
            return 401
        return int(response.status_code)


@pytest.fixture
def matrix(people: People, settings: Any) -> Matrix:
    settings.API_REQUESTS_PER_MINUTE = 0
    return Matrix(people)


def found_wrong(matrix: Matrix, *, every_role: bool) -> list[str]:
    wrong: list[str] = []

    def expect(
        who: str, method: str, address: Address, right: str, is_right: bool, got: int
    ) -> None:
        if not is_right:
            wrong.append(f"{method} {address.name} as {who}: {got}, not {right}")

    for address in addresses():
        if address.name in OPEN:
            continue
        for method in METHODS:
            rule = RULES.get(method, {}).get(address.name)
            if rule is None:
                got = matrix.status("admin", method, address)
                expect("admin", method, address, "405, or a rule", got == 405, got)
                continue
            got = matrix.status("nobody", method, address)
            expect("nobody", method, address, "401", got == 401, got)
            got = matrix.status("stranger", method, address)
            expect("stranger", method, address, "404", got == 404, got)
            least = ORDER.index(rule)
            refused = ORDER[:least] if every_role else ORDER[max(0, least - 1) : least]
            for who in refused:
                got = matrix.status(who, method, address)
                expect(who, method, address, "403", got == 403, got)
            # Pages are opened by their own tests; here only where every role is tried.
            let_in = ORDER[least : least + 1] if address.name.startswith("api:") else ()
            for who in ORDER[least:] if every_role else let_in:
                got = matrix.status(who, method, address)
                is_let = got not in (401, 403, 405) and got < 500
                expect(who, method, address, "let in", is_let, got)
    return wrong


def test_every_address_lets_in_its_role_and_nobody_below(matrix: Matrix) -> None:
    assert found_wrong(matrix, every_role=False) == []


@pytest.mark.slow
def test_every_address_by_every_role(matrix: Matrix) -> None:
    assert found_wrong(matrix, every_role=True) == []


def test_every_rule_is_of_an_address() -> None:
    names = {address.name for address in addresses()}
    told = {name for rules in RULES.values() for name in rules} | OPEN | NO_OBJECT
    assert told <= names
    assert Counter(address.name for address in addresses()).most_common(1)[0][1] == 1


def test_an_id_of_another_project_does_not_exist_here(matrix: Matrix) -> None:
    other = make_people()
    foreign = furnish(other.project, other.owner)
    values = {**foreign, "project_id": matrix.people.project.pk}
    wrong = []
    for address in addresses():
        names_object = set(address.arguments) - {"project_id"}
        if not names_object or address.name in OPEN | NO_OBJECT:
            continue
        for method in METHODS:
            if address.name not in RULES.get(method, {}):
                continue
            got = matrix.status("admin", method, address, values)
            if got != 404:
                wrong.append(f"{method} {address.name}: {got}")
    assert wrong == []
