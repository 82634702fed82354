"""The ladder from its first rung to the turn to weights, with every part real but the model."""

from __future__ import annotations

import itertools

import pytest

from optimizer.models import Budget, Candidate, Comparison
from optimizer.store import load_harness
from orchestrator.climbs import queries
from orchestrator.climbs.models import Climb, ClimbRun, ClimbState, Phase, RungState
from orchestrator.climbs.services import cancel_climb, queue_advance
from orchestrator.climbs.turns import overrule
from orchestrator.environments.models import Split
from orchestrator.jobs import lease
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs import engine
from orchestrator.runs.models import Purpose, Rollout, Run, RunState
from tests.base import People
from tests.climbs.ladder import (
    N_TEST,
    follows_demonstrations,
    make_ladder,
    never_learns,
    overfits,
    rungs,
    spoiled_by_edits,
    told,
    work,
)
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless
from training.models import TrainingState

pytestmark = pytest.mark.django_db(transaction=True)


def test_demonstrations_that_help_are_found_certified_and_tested(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(follows_demonstrations)
    climb = make_ladder(people, base_url=fault_url, model_url=model.url)
    assert work() > 6
    climb.refresh_from_db()
    assert (climb.state, climb.phase, climb.error) == (ClimbState.RUNNING, Phase.TRAIN, "")

    baseline, harness, echo = rungs(climb)
    assert (baseline.verdict, baseline.score, baseline.state) == ("reference", 0.0, RungState.DONE)
    assert (harness.verdict, harness.state) == ("better", RungState.DONE)
    assert harness.score == pytest.approx(10 / 12)
    assert (harness.n_scored, harness.n_errored) == (N_TEST, 0)
    assert harness.comparison is not None
    assert harness.comparison.low is not None
    assert harness.comparison.low > 0
    assert harness.harness is not None
    assert harness.harness_id != climb.seed_harness_id
    assert load_harness(harness.harness).demonstrations
    assert (echo.state, echo.verdict, echo.harness_id) == (
        RungState.RUNNING,
        "",
        harness.harness_id,
    )

    # The certificate stands on select tasks, before the sealed test was read.
    certificate = Comparison.objects.get(search=climb.search)
    assert (certificate.split, certificate.verdict) == (Split.SELECT, "improved")
    assert Candidate.objects.get(search=climb.search, status="certified").harness == harness.harness
    assert_splits_are_kept_apart(climb.pk)

    # Both sides of the test have the same tasks and seeds.
    assert baseline.test_run is not None
    assert harness.test_run is not None
    seeds = [
        dict(run.rollouts.values_list("task__key", "seed"))
        for run in (baseline.test_run, harness.test_run)
    ]
    assert seeds[0] == seeds[1]
    assert len(seeds[0]) == N_TEST

    # The log tells the same story as the rows.
    assert [p["phase"] for p in told(climb, "phase")] == ["search", "harness_test", "train"]
    assert [(p["index"], p["verdict"]) for p in told(climb, "rung")] == [
        (0, "reference"),
        (1, "better"),
    ]
    assert [p["id"] for p in told(climb, "run")] == [r.run_id for r in climb.climb_runs.all()]
    assert_progress_never_falls(told(climb, "progress"))
    assert_gapless()

    # What was reserved was spent.
    budget = Budget.objects.get(scope=f"climb:{climb.pk}")
    assert (budget.used, budget.reserved) == (Rollout.objects.count(), 0)
    assert budget.used == sum(rung.rollouts_spent for rung in (baseline, harness))

    view = queries.ladder(climb.pk)
    assert view.headline == "From 0 % to 83 %, certified"
    assert [edit.in_bundle for edit in view.edits].count(True) >= 1
    assert any("certified" in decision.text for decision in view.decisions)

    # Cancelled here, the trainer never starts, and what was measured stays.
    assert climb.training_job is not None
    cancel_climb(actor=people.editor, climb=climb)
    work()
    climb.refresh_from_db()
    climb.training_job.refresh_from_db()
    assert climb.state == ClimbState.CANCELLED
    assert climb.training_job.state == TrainingState.CANCELLED
    assert [rung.verdict for rung in rungs(climb)] == ["reference", "better", ""]
    assert not Job.objects.filter(state=JobState.QUEUED).exists()


def test_where_no_edit_helps_the_seed_stays_and_no_sealed_task_is_read(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    """The climb turns to weights all the same, as a person has decided."""
    model = make_model(spoiled_by_edits)
    climb = make_ladder(people, base_url=fault_url, model_url=model.url)
    # The rule would end here, where all is right; a person wants to see weights trained.
    overrule(actor=people.editor, climb=climb, next="weights")
    work()
    climb.refresh_from_db()
    baseline, harness, echo = rungs(climb)
    assert climb.phase == Phase.TRAIN
    assert (baseline.score, baseline.verdict) == (1.0, "reference")
    assert (harness.state, harness.verdict) == (RungState.DONE, "inconclusive")
    assert (harness.test_run, harness.score, harness.comparison) == (None, None, None)
    assert "the seed stays" in harness.sentence
    assert echo.harness_id == climb.seed_harness_id
    assert queries.ladder(climb.pk).headline == "Baseline 100 %; climbing"

    # A training job that fails takes the climb with it and gives its reason.
    training = climb.training_job
    assert training is not None
    assert training.job is not None
    claimed = lease.claim(training.job.pk)
    assert claimed is not None
    assert lease.fail(claimed.fence, error="TrainingError: no space left on device")
    work()
    climb.refresh_from_db()
    assert climb.state == ClimbState.FAILED
    assert "ECHO training failed" in climb.error
    assert "no space left on device" in climb.error
    echo = rungs(climb)[2]
    assert (echo.state, echo.verdict, echo.score) == (RungState.FAILED, "", None)
    assert "no space left on device" in echo.sentence
    assert told(climb, "climb.state")[-1] == {"state": "failed", "error": climb.error}
    assert_gapless()


def test_a_gain_on_train_tasks_alone_is_not_certified(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    """On unseen tasks all pairs are tied: that proves nothing, in either direction."""
    model = make_model(overfits)
    climb = make_ladder(people, base_url=fault_url, model_url=model.url)
    work()
    climb.refresh_from_db()
    _, harness, _ = rungs(climb)
    assert (climb.phase, harness.verdict) == (Phase.TRAIN, "inconclusive")
    (certificate,) = Comparison.objects.filter(search=climb.search)
    assert certificate.verdict == "indecisive"
    assert Candidate.objects.filter(search=climb.search, status="not_certified").count() == 1
    # The sealed test was not read for a bundle that its own fresh pairs do not favour.
    assert (harness.test_run, harness.comparison) == (None, None)
    assert queries.ladder(climb.pk).headline == "Baseline 0 %; climbing"


def test_a_dead_model_gives_no_verdict_and_no_zero(
    people: People, fault_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MODEL_PATIENCE_S", 0.2)
    climb = make_ladder(people, base_url=fault_url)
    work(until=lambda: bool(rungs(climb)[0].verdict))
    baseline = rungs(climb)[0]
    assert (baseline.verdict, baseline.score) == ("infrastructure", None)
    assert (baseline.n_scored, baseline.n_errored) == (0, N_TEST)
    assert "0 of 12" in baseline.sentence
    assert told(climb, "rung")[0]["score"] is None


def test_a_kill_between_a_verdict_and_the_next_phase_repeats_nothing(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    climb = make_ladder(people, base_url=fault_url, model_url=make_model(never_learns).url)
    work(until=lambda: bool(rungs(climb)[0].verdict))
    ended_at = rungs(climb)[0].ended_at
    # What such a kill leaves: the verdict is stored, the phase is the old one.
    Climb.objects.filter(pk=climb.pk).update(phase=Phase.BASELINE)
    queue_advance(climb_id=climb.pk, after="the-kill")
    work(until=lambda: Climb.objects.get(pk=climb.pk).phase == Phase.SEARCH)
    assert rungs(climb)[0].ended_at == ended_at
    assert len(told(climb, "rung")) == 1
    assert len([p for p in told(climb, "decision") if p["text"].startswith("Baseline")]) == 1


def assert_splits_are_kept_apart(climb_id: int) -> None:
    """Search runs on train, certificates on select, only rungs read the sealed test."""
    splits = {Purpose.OPTIMISE: Split.TRAIN, Purpose.CERTIFY: Split.SELECT}
    for run in Run.objects.filter(climb_run__climb=climb_id):
        expected = {splits.get(Purpose(run.purpose), Split.TEST)}
        assert set(run.rollouts.values_list("task__split", flat=True)) == expected
        assert run.state == RunState.COMPLETED
    sealed = ClimbRun.objects.filter(climb=climb_id, run__rollouts__task__split=Split.TEST)
    assert sealed.values("run").distinct().count() == 2


def assert_progress_never_falls(events: list[dict[str, float]]) -> None:
    assert {p["rung"] for p in events} == {0, 1}
    for rung, of_rung in itertools.groupby(events, key=lambda p: p["rung"]):
        shares = [p["progress"] for p in of_rung]
        assert shares == sorted(shares), rung
        assert 0 < shares[-1] < 1  # whole only with the verdict
