"""Scores of an environment's own rubric reach the criterion that combines them, and nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from orchestrator.environments.observing import reported_scores
from orchestrator.runs import engine
from orchestrator.runs.models import VerdictRecord
from orchestrator.runs.transcripts import transcript_of
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.doubles.model_server import Asked
from tests.environments.conftest import ServerFactory, own_server
from tests.runs.conftest import MakeModel
from tests.runs.drive import act, execute, kinds_of, make_run, make_version, number_of, rollouts

__all__ = ["own_server"]
pytestmark = pytest.mark.django_db(transaction=True)

TREE = {
    "kind": "weighted_sum",
    "weights": [0.75, 0.25],
    "children": [{"kind": "leaf", "component": name} for name in ("tests", "style")],
}
RUBRIC = {
    "criteria": [
        {"id": "parts", "kind": "imported", "scope": "trajectory", "params": {"tree": TREE}}
    ]
}
REPORTED = [{"tests": 1.0, "style": 0.5}, {"tests": 1.0, "style": None}, {"tests": 1.0}, {}]


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def test_each_rollout_is_graded_by_what_was_reported(
    people: People, own_server: ServerFactory, make_model: MakeModel
) -> None:
    def script(asked: Asked) -> str:
        return act(scores=json.dumps(REPORTED[number_of(asked)]))

    server, model = own_server("scored_env"), make_model(script)
    asyncio.run(server.ready())
    rubric = Rubric.objects.create(project=people.project, name="parts")
    run = make_run(
        people.project,
        version=make_version(people.project, server.base_url, tasks=4, connect_timeout_s=20.0),
        model_url=model.url,
        rubric_version=create_rubric_version(rubric=rubric, spec=RUBRIC),
    )
    execute(run)
    found = rollouts(run)
    assert [r.score for r in found] == [0.875, None, None, None]
    reasons = [VerdictRecord.objects.get(rollout=r).reason for r in found]
    assert reasons[1:] == [
        "weighted_sum[1].style: the score 'style' is null",
        "weighted_sum[1].style: the environment reported no score 'style'; it reported tests",
        "weighted_sum[0].tests: the environment reported no score 'tests'; it reported none",
    ]
    assert [("final_state" in kinds_of(r)) for r in found] == [True, True, True, False]
    assert transcript_of(found[1]).components == {"tests": 1.0, "style": None}
    assert not any("never shown" in text for asked in model.asked for _, text in asked.messages)


def test_what_is_no_number_is_kept_as_text() -> None:
    given = {"a": float("nan"), "b": float("-inf"), "c": True, "d": 1, "e": None, "f": [2]}
    assert reported_scores({"rubric_scores": given}) == {
        "a": "nan", "b": "-inf", "c": "True", "d": 1, "e": None, "f": "[2]",
    }  # fmt: skip
    assert reported_scores({"rubric_scores": [1]}) == {} == reported_scores({})
