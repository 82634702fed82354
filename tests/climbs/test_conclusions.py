"""What a rung's verdict says, from rollouts whose scores are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.utils import timezone

from optimizer.models import Comparison
from optimizer.statistics import wilson_interval
from orchestrator.climbs import queries
from orchestrator.climbs.conclusions import conclude_rung, conclude_without_test
from orchestrator.climbs.models import Climb, ClimbRun, Phase, Rung, RungState
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import LeaseLost
from orchestrator.jobs import lease
from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run
from tests.base import People
from tests.climbs.ladder import N_TEST, make_ladder, rungs, told
from tests.runs.drive import make_harness

pytestmark = pytest.mark.django_db

Scores = Sequence[float | None]
"""One per test task; None where the rollout errored."""
LOW: Scores = [0.0] * 9 + [1.0] * 3
HIGH: Scores = [1.0] * 9 + [1.0, 1.0, 0.0]
MIXED: Scores = [1.0, 0.0] * 6


@pytest.fixture
def climb(people: People) -> Climb:
    return make_ladder(people)


@pytest.fixture
def fence(climb: Climb) -> Fence:
    claimed = lease.claim(Job.objects.get(kind="climbs.advance").pk)
    assert claimed is not None
    return claimed.fence


def measured(climb: Climb, index: int, scores: Scores) -> Rung:
    """The rung with a test run that ended with these scores."""
    rung = Rung.objects.get(climb=climb, index=index)
    rung.harness = (
        make_harness(climb.project, instructions="Better.\n") if index else climb.seed_harness
    )
    tasks = Task.objects.filter(version=climb.environment_version, split=Split.TEST)
    run = create_run(
        plan=[PlannedRollout(rung.harness.pk, task) for task in tasks],
        spec=RunSpec(
            project=climb.project,
            purpose=Purpose.EVALUATE,
            label="a test",
            environment_version=climb.environment_version,
            rubric_version=climb.rubric_version,
            model=climb.model,
            seed=1,
        ),
    )
    ClimbRun.objects.create(climb=climb, run=run, rung_index=index, phase=Phase.BASELINE)
    for rollout, score in zip(run.rollouts.order_by("id"), scores, strict=True):
        is_scored = score is not None
        Rollout.objects.filter(pk=rollout.pk).update(
            state=RolloutState.SCORED if is_scored else RolloutState.ERRORED,
            score=score,
            message="" if is_scored else "the server died",
            tokens_in=90,
            tokens_out=10,
            cost_usd=0.5,
            attempt=1,
        )
    rung.test_run, rung.state, rung.started_at = run, RungState.RUNNING, timezone.now()
    rung.save()
    return rung


def concluded(climb: Climb, fence: Fence, scores: Scores, base: Scores = LOW) -> Rung:
    """The harness rung with these scores, judged against a baseline with those."""
    baseline = measured(climb, 0, base)
    conclude_rung(rung=baseline, run=run_of(baseline), base=None, fence=fence)
    rung = measured(climb, 1, scores)
    conclude_rung(rung=rung, run=run_of(rung), base=baseline, fence=fence)
    return Rung.objects.select_related("comparison").get(pk=rung.pk)


def run_of(rung: Rung) -> Run:
    assert rung.test_run is not None
    return rung.test_run


def test_the_baseline_is_the_reference(climb: Climb, fence: Fence) -> None:
    rung = measured(climb, 0, LOW)
    conclude_rung(rung=rung, run=run_of(rung), base=None, fence=fence)
    rung = Rung.objects.get(pk=rung.pk)
    assert (rung.state, rung.verdict, rung.score, rung.comparison) == (
        RungState.DONE,
        "reference",
        0.25,
        None,
    )
    assert (rung.score_low, rung.score_high) == wilson_interval(3, 12)
    assert (rung.n_scored, rung.n_errored, rung.progress) == (12, 0, 1.0)
    assert (rung.rollouts_spent, rung.tokens_spent, rung.cost_usd) == (12, 1200, 6.0)
    assert "3 of 12" in rung.sentence


@pytest.mark.parametrize(
    ("base", "scores", "verdict", "words"),
    [
        (LOW, HIGH, "better", "+67 points"),
        (HIGH, LOW, "regressed", "worse"),
        (MIXED, MIXED[::-1], "inconclusive", "too few"),
        (LOW, [0.0] * 8 + [1.0] * 4, "inconclusive", "+8 points"),
    ],
)
def test_the_verdict_follows_the_interval(
    climb: Climb, fence: Fence, base: Scores, scores: Scores, verdict: str, words: str
) -> None:
    rung = concluded(climb, fence, scores, base)
    assert rung.verdict == verdict
    assert words in rung.sentence
    comparison = rung.comparison
    assert comparison is not None
    assert (comparison.method, comparison.split) == ("paired_bootstrap", Split.TEST)
    assert (comparison.verdict, comparison.pairs, comparison.coverage) == (verdict, 12, 1.0)
    assert comparison.low is not None
    assert comparison.high is not None
    assert comparison.low <= comparison.difference <= comparison.high  # type: ignore[operator]
    assert (verdict == "better") == (comparison.low > 0)
    assert (verdict == "regressed") == (comparison.high < 0)


def test_an_inconclusive_gain_says_how_many_tasks_would_show_it(climb: Climb, fence: Fence) -> None:
    rung = concluded(climb, fence, [0.0] * 8 + [1.0] * 4)
    # sd of one difference of 1 in 12 is 0.289, so (1.96 · 0.289 / 0.0833)² = 46.1.
    assert "about 47 tasks" in rung.sentence


def test_ties_on_every_task_prove_nothing(climb: Climb, fence: Fence) -> None:
    rung = concluded(climb, fence, LOW)
    assert (rung.verdict, rung.score) == ("inconclusive", 0.25)


def test_the_same_gain_on_every_task_is_a_gain(climb: Climb, fence: Fence) -> None:
    """The bootstrap has no width there; the exact test on 12 wins of 12 is clear."""
    rung = concluded(climb, fence, [1.0] * N_TEST, base=[0.0] * N_TEST)
    assert rung.verdict == "better"
    assert "+100 points" in rung.sentence


def test_the_same_gain_on_few_tasks_is_none(climb: Climb, fence: Fence) -> None:
    """Five wins of five happen by chance once in sixteen."""
    Task.objects.filter(split=Split.TEST).exclude(key__in=[f"test-{i}" for i in range(5)]).delete()
    rung = concluded(climb, fence, [1.0] * 5, base=[0.0] * 5)
    assert rung.verdict == "inconclusive"


def test_the_same_loss_on_every_task_is_a_loss(climb: Climb, fence: Fence) -> None:
    rung = concluded(climb, fence, [0.0] * N_TEST, base=[1.0] * N_TEST)
    assert rung.verdict == "regressed"


@pytest.mark.parametrize("side", ["rung", "base"])
def test_below_the_coverage_floor_there_is_no_verdict(
    climb: Climb, fence: Fence, side: str
) -> None:
    """Three of twelve errored, on either side: 75 % is too little to compare."""
    holed: Scores = [None] * 3 + [1.0] * 9
    sides = {"rung": (holed, LOW), "base": (HIGH, holed)}
    rung = concluded(climb, fence, *sides[side])
    assert rung.verdict == "infrastructure"
    assert "too few" in rung.sentence
    assert queries.headline(rungs(climb)).endswith("climbing") is (side == "rung")


def test_errored_rollouts_above_the_floor_are_counted_and_left_out(
    climb: Climb, fence: Fence
) -> None:
    rung = concluded(climb, fence, [None, None, *HIGH[2:]])
    assert (rung.verdict, rung.n_scored, rung.n_errored) == ("better", 10, 2)
    assert rung.score == pytest.approx(0.9)
    assert rung.comparison is not None
    assert rung.comparison.coverage == pytest.approx(10 / 12)


def test_without_any_score_there_is_no_number(climb: Climb, fence: Fence) -> None:
    rung = concluded(climb, fence, [None] * N_TEST)
    assert (rung.verdict, rung.score, rung.score_low) == ("infrastructure", None, None)
    payload = told(climb, "rung")[-1]
    assert (payload["score"], payload["gain"], payload["verdict"]) == (None, None, "infrastructure")


def test_the_certificate_names_everything_that_the_claim_stands_on(
    climb: Climb, fence: Fence
) -> None:
    rung = concluded(climb, fence, HIGH)
    certificate = rung.certificate
    assert certificate["environment_sha256"] == climb.environment_version.sha256
    assert certificate["rubric_sha256"] == climb.rubric_version.sha256
    assert rung.harness is not None
    assert certificate["harness_sha256"] == rung.harness.sha256
    assert certificate["tasks"] == sorted(f"test-{i}" for i in range(N_TEST))
    assert certificate["test_run"] == rung.test_run_id
    assert certificate["baseline_run"] == rungs(climb)[0].test_run_id
    assert certificate["comparison"] == rung.comparison_id
    assert (certificate["scored"], certificate["errored"]) == (12, 0)


def test_the_log_says_what_the_row_says(climb: Climb, fence: Fence) -> None:
    rung = concluded(climb, fence, HIGH)
    payload = told(climb, "rung")[-1]
    assert rung.comparison is not None
    assert (payload["score"], payload["gain"]) == (rung.score, rung.comparison.difference)
    assert (payload["state"], payload["verdict"]) == ("done", "better")
    assert told(climb, "decision")[-1] == {"text": rung.sentence}


def test_a_lost_lease_concludes_nothing(climb: Climb, fence: Fence) -> None:
    rung = measured(climb, 0, LOW)
    Job.objects.update(attempt=9)
    with pytest.raises(LeaseLost):
        conclude_rung(rung=rung, run=run_of(rung), base=None, fence=fence)
    assert rungs(climb)[0].verdict == ""
    assert not told(climb, "rung")
    assert not Comparison.objects.exists()


# --- headlines ----------------------------------------------------------------------------------


def test_the_headline_claims_only_what_is_certified(climb: Climb, fence: Fence) -> None:
    assert queries.headline(rungs(climb)) == "The climb has not measured its baseline yet"
    baseline = measured(climb, 0, LOW)
    conclude_rung(rung=baseline, run=run_of(baseline), base=None, fence=fence)
    assert queries.headline(rungs(climb)) == "Baseline 25 %; climbing"
    harness = measured(climb, 1, HIGH)
    conclude_rung(rung=harness, run=run_of(harness), base=baseline, fence=fence)
    assert queries.headline(rungs(climb)) == "From 25 % to 92 %, certified"
    # A later rung without a verdict of its own takes nothing away.
    echo = measured(climb, 2, HIGH)
    conclude_rung(rung=echo, run=run_of(echo), base=harness, fence=fence)
    assert rungs(climb)[2].verdict == "inconclusive"
    assert queries.headline(rungs(climb)) == "From 25 % to 92 %, certified"
    assert queries.ladder(climb.pk).lede.count("points") == 2


def test_a_ladder_where_nothing_helped_says_so(climb: Climb, fence: Fence) -> None:
    concluded(climb, fence, LOW)
    echo = Rung.objects.get(climb=climb, index=2)
    conclude_without_test(rung=echo, verdict="inconclusive", sentence="Not trained.", fence=fence)
    assert queries.headline(rungs(climb)) == "Baseline 25 %; no rung is certified better"
    assert rungs(climb)[2].verdict == "inconclusive"


def test_a_baseline_without_a_score_is_not_claimed(climb: Climb, fence: Fence) -> None:
    rung = measured(climb, 0, [None] * N_TEST)
    conclude_rung(rung=rung, run=run_of(rung), base=None, fence=fence)
    assert queries.headline(rungs(climb)) == "The climb has not measured its baseline yet"
