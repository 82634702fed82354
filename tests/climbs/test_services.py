"""What people do to climbs, what ends one early, and who may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from optimizer.models import Budget
from orchestrator.climbs.asking import ask_for_run
from orchestrator.climbs.models import Climb, ClimbState, Phase, Rung, RungState
from orchestrator.climbs.services import (
    ClimbError,
    cancel_climb,
    pause_climb,
    resume_climb,
    start_climb,
)
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.climbs.weights import ask_for_training
from orchestrator.environments.models import Task
from orchestrator.jobs import lease
from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs.limits import set_limits
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.runs.services import PlannedRollout, cancel_run
from tests.base import People
from tests.climbs.ladder import N_TEST, make_ladder, never_learns, rungs, told, work
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless, rollouts
from training.models import TrainingJob, TrainingState

pytestmark = pytest.mark.django_db(transaction=True)


def state_of(climb: Climb) -> str:
    return Climb.objects.values_list("state", flat=True).get(pk=climb.pk)


def fence_of(job: Job | None) -> Fence:
    """The fence of a fresh attempt at the job."""
    assert job is not None
    claimed = lease.claim(job.pk)
    assert claimed is not None
    return claimed.fence


def advance_job(climb: Climb) -> Job:
    return Job.objects.filter(kind="climbs.advance", spec={"climb_id": climb.pk}).latest("id")


# --- pause and resume ---------------------------------------------------------------------------


def test_a_paused_climb_lets_its_run_end_and_asks_for_nothing_new(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    climb = make_ladder(people, base_url=fault_url, model_url=make_model(never_learns).url)
    work(until=lambda: Run.objects.exists())
    pause_climb(actor=people.editor, climb=climb)
    work()
    (run,) = Run.objects.all()
    assert run.state == RunState.COMPLETED
    assert (state_of(climb), rungs(climb)[0].verdict) == (ClimbState.PAUSED, "")

    resume_climb(actor=people.editor, climb=climb)
    work(until=lambda: Run.objects.count() > 1)
    assert (state_of(climb), rungs(climb)[0].verdict) == (ClimbState.RUNNING, "reference")
    assert [p["state"] for p in told(climb, "climb.state")] == ["running", "paused", "running"]
    assert_gapless()


def test_a_climb_that_is_paused_before_it_starts_starts_on_resume(people: People) -> None:
    climb = make_ladder(people)
    pause_climb(actor=people.editor, climb=climb)
    work()
    assert not Run.objects.exists()
    resume_climb(actor=people.editor, climb=climb)
    work(until=lambda: Run.objects.exists())
    climb.refresh_from_db()
    assert climb.state == ClimbState.RUNNING
    assert climb.started_at is not None


def test_at_the_days_cap_a_climb_pauses_with_the_reason_and_goes_on_when_let(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    project_id = people.project.pk
    set_limits(actor=people.owner, project_id=project_id, rollouts_per_day=1, usd_per_day=None)
    climb = make_ladder(people, base_url=fault_url, model_url=make_model(never_learns).url)
    work()
    assert (state_of(climb), Run.objects.count()) == (ClimbState.PAUSED, 0)
    assert "the project may start 1 a day" in told(climb, "decision")[-1]["text"]
    set_limits(actor=people.owner, project_id=project_id, rollouts_per_day=None, usd_per_day=None)
    resume_climb(actor=people.editor, climb=climb)
    work(until=lambda: Run.objects.exists())
    assert state_of(climb) == ClimbState.RUNNING


# --- cancelling ---------------------------------------------------------------------------------


def test_a_cancelled_climb_ends_what_it_waits_for(people: People) -> None:
    climb = make_ladder(people)
    work(until=lambda: Run.objects.exists())
    cancel_climb(actor=people.editor, climb=climb)
    work()
    (run,) = Run.objects.all()
    assert (state_of(climb), run.state) == (ClimbState.CANCELLED, RunState.CANCELLED)
    assert {r.state for r in rollouts(run)} == {"cancelled"}
    assert [rung.state for rung in rungs(climb)] == ["failed", "pending", "pending"]
    assert told(climb, "climb.state")[-1]["state"] == "cancelled"
    budget = Budget.objects.get()
    assert (budget.used, budget.reserved) == (0, 0)
    assert not Job.objects.filter(state=JobState.QUEUED).exists()
    assert_gapless()


def test_a_climb_that_is_cancelled_while_it_moves_gets_no_new_run(people: People) -> None:
    climb = make_ladder(people)
    fence = fence_of(advance_job(climb))
    cancel_climb(actor=people.editor, climb=climb)
    with pytest.raises(Cancelled):
        ask(climb, fence)
    assert not Run.objects.exists()
    assert not Budget.objects.filter(reserved__gt=0).exists()


def in_training(climb: Climb) -> TrainingJob:
    """Takes the climb to its last rung, as if the others had been measured."""
    fence = fence_of(advance_job(climb))
    Rung.objects.filter(climb=climb, index=2).update(
        harness=climb.seed_harness, state=RungState.RUNNING
    )
    Climb.objects.filter(pk=climb.pk).update(phase=Phase.TRAIN, state=ClimbState.RUNNING)
    climb.refresh_from_db()
    rung = Rung.objects.select_related("harness").get(climb=climb, index=2)
    assert ask_for_training(climb=climb, rung=rung, fence=fence) is None
    climb.refresh_from_db()
    return TrainingJob.objects.select_related("job").get()


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.FAILED])
def test_the_run_of_a_training_step_ends_with_its_training_job(
    people: People, state: JobState
) -> None:
    climb = make_ladder(people)
    training = in_training(climb)
    fence = fence_of(training.job)
    run = ask(climb, fence, rung=rungs(climb)[2], purpose=Purpose.TRAIN, queue_job=False)
    if state == JobState.CANCELLED:
        cancel_climb(actor=people.editor, climb=climb)
        assert lease.cancelled(fence)  # as the worker does when it hears of it
    else:
        assert lease.fail(fence, error="the trainer is gone")
    work()
    run.refresh_from_db()
    training.refresh_from_db()
    ended = {
        JobState.CANCELLED: (RunState.CANCELLED, TrainingState.CANCELLED, ClimbState.CANCELLED),
        JobState.FAILED: (RunState.FAILED, TrainingState.FAILED, ClimbState.FAILED),
    }
    assert (run.state, training.state, state_of(climb)) == ended[state]
    assert all(r.ended_at and r.score is None for r in rollouts(run))
    assert_gapless()


@pytest.mark.slow
def test_a_trainer_without_its_model_fails_the_climb_with_its_own_words(
    people: People, settings: Any, tmp_path: Path
) -> None:
    """The real runner, in its own process."""
    settings.MODEL_DIR = tmp_path / "nothing-here"
    climb = make_ladder(people)
    training = in_training(climb)
    assert training.job is not None
    run_attempt(training.job.pk)
    work()
    climb.refresh_from_db()
    assert climb.state == ClimbState.FAILED
    assert "nothing-here" in climb.error
    echo = rungs(climb)[2]
    assert (echo.state, echo.verdict, echo.score) == (RungState.FAILED, "", None)
    assert echo.sentence == climb.error


def ask(climb: Climb, fence: Fence, *, rung: Rung | None = None, **options: Any) -> Run:
    return ask_for_run(
        **{
            "climb": climb,
            "rung": rung or rungs(climb)[0],
            "key": "more",
            "label": "More",
            "purpose": Purpose.EVALUATE,
            "plan": [PlannedRollout(climb.seed_harness_id, task) for task in Task.objects.all()],
            "seed_parts": ("more",),
            "fence": fence,
            **options,
        }
    )


def test_a_run_that_a_person_cancels_fails_the_climb_that_stands_on_it(people: People) -> None:
    climb = make_ladder(people)
    work(until=lambda: Run.objects.exists())
    cancel_run(actor=people.editor, run=Run.objects.get())
    work()
    climb.refresh_from_db()
    assert climb.state == ClimbState.FAILED
    assert climb.error.startswith("Baseline, sealed test cancelled")
    assert rungs(climb)[0].state == RungState.FAILED


# --- refusals -----------------------------------------------------------------------------------

ACTIONS = [pause_climb, resume_climb, cancel_climb]


@pytest.mark.parametrize("action", ACTIONS)
def test_only_editors_act_on_climbs(people: People, action: Callable[..., None]) -> None:
    climb = make_ladder(people)
    for actor, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            action(actor=actor, climb=climb)
    assert state_of(climb) == ClimbState.QUEUED


def test_only_editors_start_climbs(people: People) -> None:
    climb = make_ladder(people)
    for actor, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            start_climb(
                actor=actor,
                project=people.project,
                name="Another",
                environment_version=climb.environment_version,
                rubric_version=climb.rubric_version,
                model=climb.model,
                seed_harness=climb.seed_harness,
                settings=ClimbSettings(),
            )
    assert Climb.objects.count() == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_an_ended_climb_says_that_it_has_ended(people: People, action: Callable[..., None]) -> None:
    climb = make_ladder(people)
    cancel_climb(actor=people.editor, climb=climb)
    with pytest.raises(ClimbError, match="Up the hill is cancelled"):
        action(actor=people.editor, climb=climb)


def test_only_a_paused_climb_is_resumed(people: People) -> None:
    with pytest.raises(ClimbError, match="is queued; it is not paused"):
        resume_climb(actor=people.editor, climb=make_ladder(people))


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ValueError, match=r"max_rollout\b"):
        ClimbSettings.from_json({"max_rollout": 3})
    with pytest.raises(ValueError, match="rank"):
        ClimbSettings.from_json({"train": {"rank": 3}})


# --- budget -------------------------------------------------------------------------------------


def test_a_climb_beyond_its_budget_fails_and_names_the_cap(people: People) -> None:
    """Before anything is spent."""
    climb = make_ladder(people, max_rollouts=N_TEST - 1)
    work()
    climb.refresh_from_db()
    assert climb.state == ClimbState.FAILED
    for words in (f"{N_TEST} rollouts", f"agent budget of {N_TEST - 1}", "max_rollouts"):
        assert words in climb.error
    assert not Run.objects.exists()
    baseline = rungs(climb)[0]
    assert (baseline.state, baseline.verdict, baseline.sentence) == ("failed", "", climb.error)
    assert told(climb, "climb.state")[-1] == {"state": "failed", "error": climb.error}
    assert_gapless()


def test_a_budget_that_ends_in_the_search_keeps_the_baseline(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    url = make_model(never_learns).url
    climb = make_ladder(people, base_url=fault_url, model_url=url, max_rollouts=N_TEST + 3)
    work()
    climb.refresh_from_db()
    assert (climb.state, climb.phase) == (ClimbState.FAILED, Phase.SEARCH)
    assert f"used {N_TEST}, reserved 0" in climb.error
    assert [rung.verdict for rung in rungs(climb)] == ["reference", "", ""]
    budget = Budget.objects.get(scope=f"climb:{climb.pk}")
    assert (budget.used, budget.reserved) == (N_TEST, 0)
