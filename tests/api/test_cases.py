"""Requests made from the schema by schemathesis: no fault of ours, no answer that it does not tell.

Most cases name things that are there and refer to them in their bodies, so that what lies
behind the first check is reached too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks

from orchestrator.api.description import document
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from tests.api.world import furnish
from tests.base import People

pytestmark = pytest.mark.django_db
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


def send_cases(people: People, n_each: int) -> Counter[str]:
    """How often each operation was asked; raises at the first answer that must not be."""
    world = furnish(people.project, people.owner)
    secret = issue_token(
        actor=people.owner, project_id=people.project.pk, name="t", role=Role.ADMIN
    ).secret
    schema = schemathesis.openapi.from_dict(document())
    schema.app = get_wsgi_application()
    sent: Counter[str] = Counter()
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
            if is_real:
                name_what_is_there(case, world)
            case.headers["Authorization"] = f"Bearer {secret}"
            case.headers.pop("Accept", None)
            sent[f"{case.method} {case.operation.path}"] += 1
            response = case.call()
            if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
                return
            case.validate_response(response, checks=CHECKS)

        send()
    return sent


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
        }
        for name in case.body.keys() & body.keys():
            case.body[name] = body[name]
        for name in ("version", "rubric_version", "reviewers", "criteria"):
            case.body.pop(name, None)


def test_some_cases_of_every_operation(people: People) -> None:
    sent = send_cases(people, 1)
    assert len(sent) >= 80


@pytest.mark.slow
def test_two_thousand_cases(people: People) -> None:
    sent = send_cases(people, 24)
    assert sum(sent.values()) >= 2000
