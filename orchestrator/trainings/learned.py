"""With what weight the tokens of a rollout were trained on, as its training job says."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.grading.policies import rewards
from orchestrator.runs.models import Rollout
from orchestrator.trainings.queries import advantage_of, left_out_of
from training.credit import group_advantages
from training.models import TrainingJob, TrainingRun, TrainingRunKind


@dataclass(frozen=True)
class Weights:
    """None throughout for a rollout that no training step was made of."""

    job: TrainingJob | None = None
    step: int = 0
    advantage: float | None = None
    """Of the rollout among its siblings; None also where it errored."""
    coefficient: float | None = None
    """ECHO's λ as the manifest begins with it; a schedule may have changed it since."""


def weights_of(rollout: Rollout) -> Weights:
    asked = (
        TrainingRun.objects.filter(run=rollout.run_id, kind=TrainingRunKind.STEP)
        .select_related("run", "training_job")
        .first()
    )
    if asked is None:
        return Weights()
    siblings = list(
        asked.run.rollouts.filter(task=rollout.task_id)
        .select_related("run__rubric_version")
        .order_by("replicate")
    )
    worth = rewards(siblings, left_out_of(asked))
    advantages = group_advantages(
        groups=["one"] * len(siblings),
        rewards=[worth[each.pk] for each in siblings],
        spec=advantage_of(asked.training_job),
    )
    by_rollout = dict(zip((each.pk for each in siblings), advantages, strict=True))
    objective = asked.training_job.manifest.get("objective", {})
    return Weights(
        job=asked.training_job,
        step=asked.step,
        advantage=by_rollout.get(rollout.pk),
        coefficient=objective.get("lambda_env"),
    )
