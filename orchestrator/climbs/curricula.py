"""Which tasks a climb trains on and watches, and what their rollouts teach the sampler.

A climb has up to two curricula: `climb-<id>-train`, drawn from by training steps and taught by
their rollouts, and `climb-<id>-search`, for the tasks on which the seed harness is watched. They
are apart because a success rate belongs to the harness that had it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.climbs.learning import reward_of
from orchestrator.climbs.models import Climb
from orchestrator.climbs.settings import SearchSettings, TrainSettings
from orchestrator.environments.curriculum.samplers import SamplerSettings
from orchestrator.environments.curriculum.store import draw, inherit, observe, open_curriculum
from orchestrator.environments.models import Curriculum, SamplerKind, Split, Task
from orchestrator.runs.models import Purpose, Rollout, RolloutState

_ROLES = {Purpose.TRAIN: "train", Purpose.OPTIMISE: "search"}
"""Of a run's purpose: which curriculum its rollouts teach. Sealed and selection tasks teach none.
"""


def curriculum_key(climb_id: int, role: str) -> str:
    return f"climb-{climb_id}-{role}"


def training_tasks(
    *, climb: Climb, settings: TrainSettings, step: int, exclude: Collection[str]
) -> list[Task]:
    """The tasks of a training step; the same however often it is asked."""
    curriculum = open_curriculum(
        version=climb.environment_version,
        key=curriculum_key(climb.pk, "train"),
        kind=settings.sampler,
        settings=SamplerSettings.from_json(
            {"group_size": max(2, settings.samples), **settings.sampler_settings}
        ),
        seed=climb.seed,
    )
    return draw(curriculum=curriculum, step=step, n=settings.groups, exclude=exclude)


def evidence_tasks(*, climb: Climb, settings: SearchSettings) -> list[Task]:
    """Train tasks to watch the seed harness on, by what is known from before in this version.

    For the samplers other than `sequential`, whose order the search keeps itself.
    """
    curriculum = open_curriculum(
        version=climb.environment_version,
        key=curriculum_key(climb.pk, "search"),
        kind=settings.evidence_sampler,
        seed=climb.seed,
    )
    if curriculum.kind == SamplerKind.SIGNAL:
        inherit(curriculum=curriculum)
    return draw(curriculum=curriculum, step=1, n=settings.evidence_tasks)


def learn_from(
    *, climb_id: int, rollout: Rollout, left_out: Mapping[str, str] | None = None
) -> None:
    """Counts a scored rollout of a train task. Needs the transaction in which it ended.

    `left_out`: criteria that nothing is learned from.
    """
    role = _ROLES.get(Purpose(rollout.run.purpose))
    if role is None or rollout.state != RolloutState.SCORED:
        return
    if rollout.task.split != Split.TRAIN:
        return
    curriculum = Curriculum.objects.filter(key=curriculum_key(climb_id, role)).first()
    if curriculum is None:
        return
    score = reward_of(rollout, left_out or {})
    if score is not None:
        observe(
            curriculum=curriculum,
            rollout_id=rollout.pk,
            task_id=rollout.task_id,
            score=score,
            cost=float(rollout.tokens_in + rollout.tokens_out),
        )
