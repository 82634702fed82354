"""Requests made from the schema by schemathesis: no fault of ours, no answer that it does not tell.

Most cases name things that are there and refer to them in their bodies, so that what lies
behind the first check is reached too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks

from orchestrator.api.description import document
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from tests.api.world import furnish
from tests.base import People

pytestmark = pytest.mark.django_db
WITHOUT_PAGE = {"POST /api/v1/projects/{project_id}/otlp/v1/traces"}
"""Answers whose form is somebody else's."""
schemathesis.serializer.alias(
    ["application/zip", "application/x-protobuf"], "application/octet-stream"
)
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(autouse=True)
def one_connection(settings: Any) -> Iterator[None]:
    """Requests stay inside the transaction of the test, as those of Django's own client do."""
    settings.API_REQUESTS_PER_MINUTE = 0
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@dataclass
class Sent:
    cases: Counter[str] = field(default_factory=Counter)
    """By operation."""
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def send_cases(people: People, n_each: int) -> Sent:
    """`n_each` of each operation; what a request changes is taken back before the next."""
    world = furnish(people.project, people.owner)
    secret = issue_token(
        actor=people.owner, project_id=people.project.pk, name="t", role=Role.ADMIN
    ).secret
    schema = schemathesis.openapi.from_dict(document())
    schema.app = get_wsgi_application()
    sent = Sent()
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr] # an error fails the test

        @settings(
            max_examples=n_each,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), is_real=st.integers(0, 3))
        def send(case: Any, is_real: int) -> None:
            if is_real < 3:  # the first that is made is 0
                name_what_is_there(case, world)
            case.headers["Authorization"] = f"Bearer {secret}"
            case.headers.pop("Accept", None)
            sent.cases[f"{case.method} {case.operation.path}"] += 1
            with transaction.atomic():
                response = case.call()
                transaction.set_rollback(True)
            sent.statuses[response.status_code] += 1
            if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
                return
            case.validate_response(response, checks=CHECKS)
            tell_pages(case, response)

        try:
            send()
        except (Exception, ExceptionGroup) as found:  # all operations are told, not the first
            sent.wrong.append(f"{operation.method} {operation.path}: {_in_short(found)}")
            print(f"wrong: {sent.wrong[-1]}", flush=True)  # long before the end of a night
    return sent


def _in_short(found: BaseException) -> str:
    inner = getattr(found, "exceptions", None)
    text = "; ".join(map(_in_short, inner)) if inner else f"{type(found).__name__}: {found}"
    return text[:2000]


def tell_pages(case: Any, response: Any) -> None:
    """Every answer with a body names its page for people, by its whole address."""
    name = f"{case.method.upper()} {case.operation.path}"
    if response.status_code >= 300 or not response.content or name in WITHOUT_PAGE:
        return
    if not response.headers["content-type"][0].startswith("application/json"):
        return
    page = response.json().get("html_url", "")
    assert page.startswith(("http://", "https://")), f"html_url is {page!r}"


def name_what_is_there(case: Any, world: dict[str, Any]) -> None:
    for name in case.path_parameters or {}:
        if name in world:
            case.path_parameters[name] = world[name]
    if isinstance(case.body, dict):
        body = {
            "environment": world["slug"],
            "rubric": world["rubric_id"],
            "model": world["model_id"],
            "harness": world["harness_id"],
            "rollouts": [world["rollout_id"]],
            "run": world["run_id"],
            "rollout": world["rollout_id"],
            "criterion": "correct",
            "queue": world["queue_id"],
            "golden_case": world["case_id"],
        }
        for name in case.body.keys() & body.keys():
            case.body[name] = body[name]
        for name in ("version", "rubric_version", "reviewers", "criteria"):
            case.body.pop(name, None)
    headers = case.headers or {}
    if "If-Match" in headers:
        headers["If-Match"] = "*"


def test_some_cases_of_every_operation(people: People) -> None:
    """Where `CI` is set, 2,000 in all."""
    sent = send_cases(people, 8 if os.environ.get("CI") else 1)
    assert sent.wrong == []
    print(sum(sent.cases.values()), dict(sent.statuses))
    assert len(sent.cases) >= 200


@pytest.mark.slow
def test_many_cases(people: People) -> None:
    """API_CASES: how many in all; 2,000 unless told, every night 20,000."""
    wanted = int(os.environ.get("API_CASES", "2000"))
    n_operations = sum(len(methods) for methods in document()["paths"].values())
    sent = send_cases(people, -(-wanted // n_operations))
    print(dict(sent.statuses))
    assert sent.wrong == []
    assert sum(sent.cases.values()) >= 0.95 * wanted


def test_every_answer_has_a_page() -> None:
    """In the document: `html_url` is a field of whatever is answered with a body."""
    schemas = document()["components"]["schemas"]
    without = set()
    for path, methods in document()["paths"].items():
        for method, said in methods.items():
            for status, answer in said["responses"].items():
                body = answer.get("content", {}).get("application/json", {}).get("schema")
                if not status.startswith("2") or body is None:
                    continue
                shape = schemas.get(body.get("$ref", "").rpartition("/")[2], body)
                if "html_url" not in shape.get("properties", {}):
                    without.add(f"{method.upper()} {path}")
    assert without == WITHOUT_PAGE
