"""A sweep over lambda: its jobs, and a verdict that says no more than its seeds allow."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.runs.models import Purpose, Rollout, RolloutState
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.scheduling import give_back
from orchestrator.trainings.sweep_verdict import Scores, interval, judge
from orchestrator.trainings.sweeps import cancel_sweep, conclude, lambda_of, start_sweep
from tests.base import People
from tests.runs.drive import make_run
from tests.trainings.build import SMALL, parts
from training.models import Sweep, TrainingJob, TrainingRun, TrainingState

TASKS = [f"t{i}" for i in range(8)]


def scores(by_value: dict[float, list[float]]) -> Scores:
    """Per value the score on each seed, the same on every task but for a ripple."""
    return {
        value: {
            seed: {task: level + 0.01 * (i % 2) for i, task in enumerate(TASKS)}
            for seed, level in enumerate(levels)
        }
        for value, levels in by_value.items()
    }


def test_a_value_that_is_ahead_on_every_seed_is_better() -> None:
    verdict = judge(scores({0.0: [0.4, 0.5, 0.45], 0.05: [0.6, 0.7, 0.66]}), [0.0, 0.05])
    assert (verdict.word, verdict.best) == ("better", 0.05)
    compared = verdict.compared[1]
    assert (compared.word, compared.seeds, compared.seeds_ahead) == ("better", 3, 3)
    assert compared.difference == pytest.approx(0.203, abs=0.01)
    assert compared.low is not None
    assert compared.low > 0
    assert verdict.sentence.startswith("λ 0.05 is better than λ 0 by +20.3 points [")


def test_one_seed_decides_nothing() -> None:
    verdict = judge(scores({0.0: [0.1], 0.05: [0.9]}), [0.0, 0.05])
    assert (verdict.word, verdict.best) == ("inconclusive", None)
    assert "one seed cannot tell" in verdict.sentence


def test_seeds_that_disagree_leave_it_open() -> None:
    verdict = judge(scores({0.0: [0.4, 0.5], 0.05: [0.7, 0.3]}), [0.0, 0.05])
    assert verdict.word == "inconclusive"
    assert verdict.compared[1].seeds_ahead == 1


def test_where_everything_else_is_worse_the_baseline_is_best() -> None:
    verdict = judge(scores({0.0: [0.8, 0.8], 0.2: [0.2, 0.3]}), [0.0, 0.2])
    assert (verdict.word, verdict.best, verdict.compared[1].word) == ("better", 0.0, "regressed")


def test_a_value_without_scores_is_infrastructure_and_not_a_zero() -> None:
    verdict = judge(scores({0.0: [0.8, 0.8]}), [0.0, 0.2])
    assert verdict.word == "infrastructure"
    assert verdict.compared[1].mean is None


def test_more_values_widen_each_interval() -> None:
    table = [[0.1, 0.3, -0.1, 0.2], [0.0, 0.2, 0.1, 0.15]]
    wide, narrow = interval(table, 0.01), interval(table, 0.05)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]


def sweep_of(people: People, **changes: Any) -> Sweep:
    options = {"lambdas": [0.0, 0.05], "seeds": [0, 1], **changes}
    return start_sweep(
        actor=people.editor,
        project=people.project,
        name="How much",
        settings=SMALL,
        **parts(people.project),
        **options,
    )


@pytest.mark.django_db
def test_a_sweep_has_a_job_per_value_and_seed_and_concludes_with_the_last(people: People) -> None:
    sweep = sweep_of(people)
    jobs = list(sweep.jobs.order_by("id"))
    assert [(int(j.manifest["seed"]), lambda_of(j)) for j in jobs] == [
        (0, 0.0),
        (0, 0.05),
        (1, 0.0),
        (1, 0.05),
    ]
    for job in jobs:
        assert conclude(sweep.pk) is None
        evaluated(job, score=1.0 if lambda_of(job) else 0.0)
    verdict = conclude(sweep.pk)
    assert verdict is not None
    assert (verdict.word, verdict.best) == ("better", 0.05)
    sweep.refresh_from_db()
    assert sweep.verdict["sentence"] == verdict.sentence
    assert conclude(sweep.pk) is None  # once


def evaluated(job: TrainingJob, *, score: float) -> None:
    """The job has ended, and its chosen weights were measured on held-out tasks."""
    assert job.environment_version is not None
    run = make_run(
        job.project, version=job.environment_version, purpose=Purpose.EVALUATE, key=f"e{job.pk}"
    )
    Rollout.objects.filter(run=run).update(state=RolloutState.SCORED, score=score)
    TrainingRun.objects.create(training_job=job, run=run, kind="evaluation", step=2)
    give_back(job, state=TrainingState.COMPLETED, chosen_step=2)


@pytest.mark.django_db
def test_a_cancelled_sweep_says_what_it_knows(people: People) -> None:
    sweep = sweep_of(people)
    cancel_sweep(actor=people.editor, sweep=sweep)
    sweep.refresh_from_db()
    assert set(sweep.jobs.values_list("state", flat=True)) == {TrainingState.CANCELLED}
    assert sweep.verdict["word"] == "infrastructure"
    assert sweep.ended_at is not None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lambdas": [0.05]}, "at least two values"),
        ({"lambdas": [0.0, -1.0]}, "0 or more"),
        ({"lambdas": [0.0, float("nan")]}, "0 or more"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": range(13)}, "at most 24"),
    ],
)
def test_a_sweep_that_could_not_be_decided_is_refused(
    people: People, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TrainingRefused, match=reason):
        sweep_of(people, **changes)
    assert not Sweep.objects.exists()
