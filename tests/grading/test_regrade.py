"""Past rollouts under another rubric: what is chosen, what is graded, what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from benchmarks.past_rollouts import make_tasks, write_run
from orchestrator.events.models import Event
from orchestrator.grading import jobs, regrade
from orchestrator.grading.backtest import comparison_of, start_backtest
from orchestrator.grading.drafts import save_draft, start_draft
from orchestrator.grading.errors import RegradeRefused
from orchestrator.grading.models import Regrade, RegradedScore
from orchestrator.grading.selecting import Selection, chosen_ids
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs.models import Rollout, VerdictRecord
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.environments.conftest import needs_bubblewrap

pytestmark = pytest.mark.django_db(transaction=True)

RIGHT: dict[str, Any] = {"id": "right", "kind": "exact"}
FEW: dict[str, Any] = {
    "id": "few",
    "kind": "steps",
    "scope": "trajectory",
    "params": {"max": 6, "within": 5},
}
SPEC = {"criteria": [RIGHT, FEW], "pass_threshold": 0.75}


def make_version(people: People, **spec: Any) -> RubricVersion:
    rubric, _ = Rubric.objects.get_or_create(project=people.project, name="answers")
    return create_rubric_version(rubric=rubric, spec={**SPEC, **spec})


def work(asked: Regrade) -> Regrade:
    asked.refresh_from_db()
    assert asked.job_id is not None
    run_attempt(asked.job_id)
    asked.refresh_from_db()
    return asked


def backtest(people: People, version: RubricVersion, *criteria: Any, **rest: Any) -> Regrade:
    draft = start_draft(actor=people.editor, rubric=version.rubric)
    spec = {**SPEC, "criteria": list(criteria), **rest}
    save_draft(actor=people.editor, draft=draft, spec=spec, revision=draft.revision)
    draft.refresh_from_db()
    return work(start_backtest(actor=people.editor, draft=draft))


def test_a_back_test_says_what_flips_by_how_much_and_what_to_read(people: People) -> None:
    version = make_version(people)
    write_run(rubric_version=version, version=make_tasks(people.project), n=24)
    before = list(Rollout.objects.order_by("pk").values_list("score", flat=True))
    asked = backtest(people, version, RIGHT, {**FEW, "params": {"max": 4, "within": 2}})
    assert (asked.state, asked.scores.count()) == ("completed", 24)
    found = comparison_of(asked)
    # Half of the score is the answer, which two of three have. Of the other half three, four and
    # five steps now lose a third, two thirds and all.
    assert (found.n, found.n_both, found.n_errored) == (24, 24, 0)
    assert found.n_flipped == found.n_to_fail == 8
    assert found.mean_before == pytest.approx((16 * 1 + 8 * 0.5) / 24)
    assert found.difference == pytest.approx(-6 * (1 + 2 + 3) / 3 / 2 / 24)
    assert found.interval is not None
    assert found.difference is not None
    assert found.interval.low < found.difference < found.interval.high
    assert [pair.is_flip for pair in found.to_read] == [True] * 8 + [False] * 2
    assert len(found.to_read) == 10
    assert [(c.id, c.what, c.n_changed) for c in found.criteria] == [
        ("right", "same", 0),
        ("few", "changed", 18),
    ]
    assert list(Rollout.objects.order_by("pk").values_list("score", flat=True)) == before
    told = Event.objects.filter(stream=asked.stream).order_by("seq")
    assert [event.kind for event in told] == ["regrade.progress", "regrade.ended"]


def test_only_what_the_edit_touches_is_graded_again(people: People) -> None:
    """A stored verdict that no grading would give shows where a verdict comes from."""
    version = make_version(people)
    run = write_run(rubric_version=version, version=make_tasks(people.project), n=3)
    VerdictRecord.objects.filter(criterion="right").update(value=0.25, reason="as stored")
    asked = backtest(people, version, {**RIGHT, "name": "Renamed", "weight": 3}, FEW)
    rows = asked.scores.all()
    assert {row.verdicts[0]["reason"] for row in rows} == {"as stored"}
    assert {row.verdicts[0]["name"] for row in rows} == {"Renamed"}
    asked = backtest(people, version, {**RIGHT, "params": {"ignore_case": True}}, FEW)
    assert {row.verdicts[0]["reason"] for row in asked.scores.all()} != {"as stored"}
    # A re-grade trusts nothing, unless it is asked to.
    again = work(
        regrade.start_regrade(actor=people.editor, version=version, chosen=Selection(run_id=run.pk))
    )
    assert {row.verdicts[0]["reason"] for row in again.scores.all()} != {"as stored"}


def test_what_stood_behind_a_gate_is_graded_once_the_gate_opens(people: People) -> None:
    gate = {**RIGHT, "gate": True}
    version = make_version(people, criteria=[gate, FEW])
    write_run(rubric_version=version, version=make_tasks(people.project), n=6)
    shut = VerdictRecord.objects.filter(criterion="few", state="not_applicable")
    assert shut.count() == 2
    asked = backtest(people, version, RIGHT, FEW)
    assert {row.verdicts[1]["state"] for row in asked.scores.all()} == {"scored"}
    # And the other way round: a gate that shuts takes what was decided behind it.
    open_one = make_version(people)
    write_run(rubric_version=open_one, version=make_tasks(people.project), n=6)
    asked = backtest(people, version, gate, FEW)
    states = [row.verdicts[1]["state"] for row in asked.scores.all()]
    assert states.count("not_applicable") == 4


def test_an_episode_without_a_result_has_no_score_under_any_rubric(people: People) -> None:
    version = make_version(people)
    write_run(
        rubric_version=version,
        version=make_tasks(people.project),
        n=4,
        errored=frozenset({1}),
    )
    found = comparison_of(asked := backtest(people, version, FEW))
    assert (found.n, found.n_both, found.n_errored) == (4, 3, 1)
    row = asked.scores.get(state="errored")
    assert (row.score, row.verdicts) == (None, [])
    assert "The environment server went away" in row.reason
    assert [(c.id, c.what) for c in found.criteria] == [("few", "same"), ("right", "removed")]


def test_it_goes_on_with_exactly_those_without_a_row(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = make_version(people)
    write_run(rubric_version=version, version=make_tasks(people.project), n=7)
    monkeypatch.setattr(jobs, "CHUNK", 2)
    asked = regrade.start_regrade(
        actor=people.editor, version=version, chosen=Selection(rubric_id=version.rubric_id)
    )
    first = asked.selection["rollouts"][2]
    RegradedScore.objects.create(regrade=asked, rollout_id=first, state="scored", score=0.125)
    asked = work(asked)
    assert asked.scores.count() == 7
    assert asked.scores.get(rollout_id=first).score == 0.125
    progress = Event.objects.filter(stream=asked.stream, kind="regrade.progress").order_by("seq")
    assert [event.payload["n_done"] for event in progress] == [3, 5, 7]
    assert regrade.resume_regrade(actor=people.editor, regrade=asked) == 0
    assert Job.objects.filter(kind=regrade.JOB_KIND).count() == 1


def test_cancelling_keeps_what_is_graded_and_can_be_taken_up_again(people: People) -> None:
    version = make_version(people)
    write_run(rubric_version=version, version=make_tasks(people.project), n=3)
    asked = regrade.start_regrade(
        actor=people.editor, version=version, chosen=Selection(rubric_id=version.rubric_id)
    )
    with pytest.raises(RegradeRefused, match="under way"):
        regrade.resume_regrade(actor=people.editor, regrade=asked)
    regrade.cancel_regrade(actor=people.editor, regrade=asked)
    asked.refresh_from_db()
    assert (asked.state, asked.job and asked.job.state) == ("cancelled", JobState.CANCELLED)
    ended = Event.objects.get(stream=asked.stream, kind="regrade.ended")
    assert ended.payload["state"] == "cancelled"
    assert regrade.resume_regrade(actor=people.editor, regrade=asked) == 3
    assert work(asked).scores.count() == 3


def test_what_errored_is_tried_again_alone(people: People) -> None:
    """No file is in a trace that says nothing of its final state: that criterion errs."""
    state = {
        "id": "made",
        "kind": "state_file",
        "scope": "environment_state",
        "params": {"path": "a.txt"},
    }
    version = make_version(people, criteria=[RIGHT, state])
    run = write_run(rubric_version=version, version=make_tasks(people.project), n=3)
    assert VerdictRecord.objects.filter(state="errored").count() == 3
    VerdictRecord.objects.filter(criterion="right").update(reason="as stored")
    asked = work(regrade.retry_errors_of_run(actor=people.editor, run=run))
    assert asked.version == version
    rows = list(asked.scores.all())
    assert {row.verdicts[0]["reason"] for row in rows} == {"as stored"}
    assert {row.verdicts[1]["state"] for row in rows} == {"errored"}
    assert regrade.resume_regrade(actor=people.editor, regrade=asked, with_errors=True) == 3
    assert Regrade.objects.get(pk=asked.pk).scores.count() == 0
    clean = write_run(rubric_version=make_version(people), version=make_tasks(people.project), n=1)
    with pytest.raises(RegradeRefused, match="No rollout"):
        regrade.retry_errors_of_run(actor=people.editor, run=clean)


@needs_bubblewrap
def test_criteria_that_wait_are_graded_side_by_side(people: People) -> None:
    version = make_version(people)
    write_run(rubric_version=version, version=make_tasks(people.project), n=20)
    code = {
        "id": "code",
        "kind": "python",
        "scope": "trajectory",
        "params": {"source": "def grade(trace):\n    return 1 / len(trace['steps'])\n"},
    }
    asked = backtest(people, version, RIGHT, code)
    assert asked.state == "completed", asked.error
    values = {row.rollout_id: row.verdicts[1]["value"] for row in asked.scores.all()}
    steps = dict(Rollout.objects.values_list("pk", "n_steps"))
    assert values == {pk: pytest.approx(1 / n) for pk, n in steps.items()}


def test_choices_narrow_the_past(people: People) -> None:
    version = make_version(people)
    tasks = make_tasks(people.project, split="test")
    run = write_run(rubric_version=version, version=tasks, n=4, errored=frozenset({0}))
    other = write_run(
        rubric_version=make_version(people, pass_threshold=0.9),
        version=make_tasks(people.project),
        n=5,
    )
    project = people.project.pk

    def n(limit: int = 100, **chosen: Any) -> int:
        return len(chosen_ids(project, Selection(**chosen), limit))

    assert n() == 9
    assert n(limit=2) == 2
    assert n(run_id=run.pk) == 4
    assert n(run_id=run.pk, state="errored") == 1
    assert n(state="scored") == 8
    assert n(without_test=True) == 5
    assert n(environment_id=tasks.environment_id) == 4
    assert n(rubric_id=version.rubric_id) == 9
    assert n(search="train-0003") == 1
    assert n(search="went away") == 1
    ids = tuple(Rollout.objects.filter(run=other).values_list("pk", flat=True)[:2])
    assert n(rollout_ids=ids) == 2
    found = comparison_of(backtest(people, version, RIGHT))
    assert (found.n, found.n_sealed) == (9, 4)
    assert sorted(found.versions) == [("answers v1", 4), ("answers v2", 5)]


def test_viewers_start_nothing(people: People) -> None:
    version = make_version(people)
    run = write_run(rubric_version=version, version=make_tasks(people.project), n=1)
    with pytest.raises(PermissionDenied):
        regrade.start_regrade(actor=people.member, version=version, chosen=Selection(run_id=run.pk))
    with pytest.raises(PermissionDenied):
        start_backtest(
            actor=people.member,
            draft=start_draft(actor=people.editor, rubric=version.rubric),
        )
