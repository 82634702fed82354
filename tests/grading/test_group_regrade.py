"""Past rollouts that are compared: a task of a run is one group, stored as a whole."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import pytest

from benchmarks.past_rollouts import make_tasks, write_run
from orchestrator.grading.groups import whole_groups
from orchestrator.judging.models import JudgeCall
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.doubles.model_server import Asked, Raw, ScriptedModel
from tests.grading.test_regrade import RIGHT, backtest, make_version
from tests.judging.test_judges import endpoint
from tests.runs.test_groups import data_of

pytestmark = pytest.mark.django_db(transaction=True)

BEST: dict[str, Any] = {
    "id": "best",
    "kind": "judge_group",
    "params": {"question": "Which is best?", "sees": ["steps", "answer"], "min": 0, "max": 1},
}


def equal_marks(asked: Asked) -> str:
    key = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
    assert key is not None
    given = [{"id": s["id"], "reason": "", "score": 0.5} for s in data_of(asked)["rollouts"]]
    return json.dumps({"key": key.group(1), "marks": given})


def grouped() -> dict[tuple[int, int], list[int]]:
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for pk, run, task in Rollout.objects.values_list("pk", "run_id", "task_id"):
        groups[run, task].append(pk)
    return groups


def test_groups_are_never_cut(people: People) -> None:
    version = make_version(people)
    tasks = make_tasks(people.project)
    for _ in range(2):
        write_run(rubric_version=version, version=tasks, n=20)
    ids = sorted(Rollout.objects.values_list("pk", flat=True))
    found = whole_groups(ids)
    assert sorted(map(sorted, found)) == sorted(map(sorted, grouped().values()))


def test_each_task_of_a_run_is_compared_with_itself(people: People) -> None:
    version = make_version(people)
    write_run(rubric_version=version, version=make_tasks(people.project), n=20)
    with ScriptedModel(equal_marks) as model:
        endpoint(people.project, model)
        asked = backtest(people, version, RIGHT, BEST)
    assert asked.state == "completed", asked.error
    sizes = {row.rollout_id: row.verdicts[1] for row in asked.scores.all()}
    for members in grouped().values():
        for pk in members:
            verdict = sizes[pk]
            if len(members) < 2:
                assert "at least two" in verdict["reason"]
            elif verdict["state"] == "scored":
                assert verdict["value"] == 0.5 and verdict["detail"]["group"] <= len(members)
    assert JudgeCall.objects.exists()


def test_a_judge_that_is_away_leaves_errors_and_the_rest(people: People) -> None:
    version = make_version(people)
    write_run(rubric_version=version, version=make_tasks(people.project), n=6)
    with ScriptedModel(lambda asked: Raw(400, '{"error": {"message": "no"}}')) as model:
        endpoint(people.project, model)
        asked = backtest(people, version, RIGHT, BEST)
    assert asked.state == "completed", asked.error
    graded = [row for row in asked.scores.all() if row.verdicts]
    assert {row.verdicts[1]["state"] for row in graded} == {"errored"}
    assert all(row.verdicts[0]["value"] is not None for row in graded)
