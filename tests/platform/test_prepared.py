"""Prepared queries answer what their query sets answer, without being compiled again."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction
from django.db.models import Count
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.prepared import Prepared
from orchestrator.projects.models import ApiToken, Project, Role
from orchestrator.projects.services import create_first_admin, create_project, issue_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def projects() -> list[Project]:
    admin = create_first_admin().user
    made = [create_project(actor=admin, name=name) for name in ("one", "two")]
    for project in made:
        for name in ("b", "a", "it's %s and \N{WHITE SQUARE}"):
            issue_token(actor=admin, project_id=project.pk, name=name, role=Role.EDITOR)
    return made


def test_it_answers_as_the_query_set_for_each_value(projects: list[Project]) -> None:
    tokens = Prepared(
        lambda project, name: (
            ApiToken.objects.select_related("user", "project")
            .filter(project=project, name=name, revoked_at=None)
            .order_by("-pk")
        ),
        project=int,
        name=str,
    )
    for project in projects:
        for name in ("a", "b", "it's %s and \N{WHITE SQUARE}", "of nobody", ""):
            query = ApiToken.objects.filter(project=project, name=name).order_by("-pk")
            with CaptureQueriesContext(connection) as asked:
                found = tokens.all(project=project.pk, name=name)
                first = tokens.first(project=project.pk, name=name)
                assert [(each.user.username, each.project.name) for each in found] == [
                    ("admin", project.name)
                ] * len(found)
            assert len(asked) == 2, "what select_related names came along"
            assert found == list(query)
            assert first == query.first()
            for one, other in zip(found, query, strict=True):
                fields = ApiToken._meta.concrete_fields
                assert [f.value_from_object(one) for f in fields] == [
                    f.value_from_object(other) for f in fields
                ]


def test_columns_are_converted_and_the_others_are_read_when_asked_for(
    projects: list[Project],
) -> None:
    stored = store_harness(project_id=projects[0].pk, harness=Harness(instructions="Act.\n"))
    whole = Prepared(lambda pk: HarnessVersion.objects.filter(pk=pk), pk=int)
    some = Prepared(lambda pk: HarnessVersion.objects.only("sha256").filter(pk=pk), pk=int)
    kept = HarnessVersion.objects.get(pk=stored.pk)
    found = whole.first(pk=stored.pk)
    assert found is not None
    assert found.components == kept.components
    part = some.first(pk=stored.pk)
    assert part is not None
    assert part.get_deferred_fields() >= {"components"}
    assert part.components == kept.components


def test_without_an_order_the_first_is_that_of_the_lowest_key(projects: list[Project]) -> None:
    tokens = Prepared(lambda project: ApiToken.objects.filter(project=project), project=int)
    found = tokens.first(project=projects[1].pk)
    assert found == ApiToken.objects.filter(project=projects[1]).order_by("pk").first()


def test_it_refuses_what_it_cannot_do(projects: list[Project]) -> None:
    one = Prepared(lambda pk: Project.objects.filter(pk=pk), pk=int)
    with pytest.raises(TypeError, match="takes pk; given project"):
        one.first(project=1)
    counted = Prepared(lambda pk: Project.objects.annotate(n=Count("pk")).filter(pk=pk), pk=int)
    with pytest.raises(TypeError, match="annotations"):
        counted.first(pk=1)
    unused = Prepared(lambda pk: Project.objects.order_by("pk"), pk=int)
    with pytest.raises(TypeError, match="does not compare with pk"):
        unused.first(pk=1)


@pytest.mark.parametrize("n", [0, 1, 2, 4, 5, 64, 65])
def test_a_list_finds_what_in_finds(projects: list[Project], n: int) -> None:
    for number in range(70):
        create_project(actor=create_first_admin().user, name=f"more {number}")
    some = Prepared(
        lambda name, ids: Project.objects.filter(pk__in=ids).exclude(name=name).order_by("-pk"),
        name=str,
        ids=list,
    )
    keys = list(Project.objects.order_by("pk").values_list("pk", flat=True)[:n])
    for _ in range(2):
        found = some.all(ids=keys, name="one")
        assert found == list(
            Project.objects.filter(pk__in=keys).exclude(name="one").order_by("-pk")
        )
    assert some.first(ids=keys[::-1], name="nobody") == (
        Project.objects.filter(pk__in=keys).order_by("-pk").first()
    )
    assert some.all(ids=[10**9] * n, name="one") == []


def test_a_number_beyond_all_columns_finds_nothing(projects: list[Project]) -> None:
    one = Prepared(lambda pk: Project.objects.filter(pk=pk), pk=int)
    assert one.first(pk=2**70) is None
    assert one.first(pk=projects[0].pk) == projects[0]


def test_what_finds_nothing_for_any_value_is_refused() -> None:
    none = Prepared(lambda pk: Project.objects.filter(pk=pk)[:0], pk=int)
    with pytest.raises(TypeError, match="finds nothing"):
        none.all(pk=1)


def test_it_keeps_no_connection_of_who_compiled_it(projects: list[Project]) -> None:
    kept = Prepared(lambda pk: Project.objects.filter(pk=pk), pk=int)
    found: list[Project | None] = []
    gone: list[weakref.ref[object]] = []

    def compiled_elsewhere() -> None:
        own = connections[DEFAULT_DB_ALIAS]
        gone.append(weakref.ref(own))
        with suppress(DatabaseError):  # the test's rows are not to be seen from here
            found.append(kept.first(pk=projects[0].pk))
        own.close()
        del connections[DEFAULT_DB_ALIAS]

    thread = threading.Thread(target=compiled_elsewhere)
    thread.start()
    thread.join()
    gc.collect()
    assert gone[0]() is None
    again = kept.first(pk=projects[0].pk)
    assert again == projects[0]
    assert again.created_at == projects[0].created_at


@pytest.mark.django_db(transaction=True)
def test_a_lock_needs_a_transaction_each_time() -> None:
    project = create_project(actor=create_first_admin().user, name="one")
    held = Prepared(lambda pk: Project.objects.select_for_update().filter(pk=pk), pk=int)
    with transaction.atomic():
        assert held.first(pk=project.pk) == project
    for _ in range(2):
        with pytest.raises(TransactionManagementError):
            held.first(pk=project.pk)
