"""Curricula as rows: one sampler's state, its draws, and what each ended rollout taught it.

Every change is atomic and idempotent. A draw is stored under its step before it is used; a rollout
counts once, however often it is told. So a worker may be killed between any two of these and who
resumes asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import transaction
from django.db.models import Case, F, FloatField, Value, When

from orchestrator.environments.curriculum import samplers
from orchestrator.environments.curriculum.samplers import Known, SamplerSettings
from orchestrator.environments.models import (
    Curriculum,
    CurriculumDraw,
    CurriculumRollout,
    EnvironmentVersion,
    SamplerKind,
    Split,
    Task,
    TaskEstimate,
)


def open_curriculum(
    *,
    version: EnvironmentVersion,
    key: str,
    kind: str = SamplerKind.SEQUENTIAL,
    settings: SamplerSettings | None = None,
    seed: int = 0,
) -> Curriculum:
    """The curriculum of this key, made where it does not exist; an existing one stays as it is."""
    if kind not in SamplerKind.values:
        raise ValueError(f"unknown sampler {kind!r}; known: {', '.join(SamplerKind.values)}")
    found, _ = Curriculum.objects.get_or_create(
        key=key,
        defaults={
            "version": version,
            "kind": kind,
            "settings": (settings or SamplerSettings()).as_json(),
            "seed": seed,
        },
    )
    return found


def draw(*, curriculum: Curriculum, step: int, n: int, exclude: Collection[str] = ()) -> list[Task]:
    """`n` different train tasks for this step, in the order drawn; fewer if there are not so many.

    The tasks of a step never change once they were drawn. `exclude`: keys that are not drawn.
    """
    with transaction.atomic():
        # Taken first, so that two who ask at once are ordered on PostgreSQL too.
        fresh = Curriculum.objects.select_for_update().get(pk=curriculum.pk)
        made = CurriculumDraw.objects.filter(curriculum=fresh, step=step).first()
        if made is None:
            keys = _sample(fresh, known_tasks(fresh, exclude=exclude), n)
            made = CurriculumDraw.objects.create(
                curriculum=fresh, step=step, tasks=keys, n_before=fresh.n_draws
            )
            # What was asked for, so that passes go on where they were.
            Curriculum.objects.filter(pk=fresh.pk).update(n_draws=F("n_draws") + n)
            _count_draws(fresh, keys)
    tasks = {t.key: t for t in Task.objects.filter(version=fresh.version_id, key__in=made.tasks)}
    return [tasks[key] for key in made.tasks]


def observe(
    *, curriculum: Curriculum, rollout_id: int, task_id: int, score: float, cost: float
) -> bool:
    """Counts a scored rollout; False if it was counted before.

    `score` is clamped to 0 to 1 and counts in part if it lies between. `cost` in any unit that is
    the same for all, 0 if unknown.
    """
    decay = SamplerSettings.from_json(curriculum.settings).decay
    share = min(1.0, max(0.0, score))
    with transaction.atomic():
        _, is_new = CurriculumRollout.objects.get_or_create(
            curriculum=curriculum, rollout_id=rollout_id
        )
        if not is_new:
            return False
        TaskEstimate.objects.get_or_create(curriculum=curriculum, task_id=task_id)
        # In the database: two rollouts of one task may end in two workers at once.
        TaskEstimate.objects.filter(curriculum=curriculum, task_id=task_id).update(
            successes=F("successes") * decay + share,
            failures=F("failures") * decay + (1 - share),
            cost=Case(
                When(cost__lte=0, then=Value(cost)),
                default=F("cost") * decay + cost * (1 - decay) if cost > 0 else F("cost"),
                output_field=FloatField(),
            ),
            n_rollouts=F("n_rollouts") + 1,
        )
    return True


def inherit(*, curriculum: Curriculum) -> bool:
    """Begins with what the newest curriculum of the same version knows; False if nothing is new.

    Only for one that has neither drawn nor counted anything: whoever resumes inherits nothing new.
    """
    with transaction.atomic():
        fresh = Curriculum.objects.select_for_update().get(pk=curriculum.pk)
        if fresh.n_draws or TaskEstimate.objects.filter(curriculum=fresh).exists():
            return False
        earlier = (
            Curriculum.objects.filter(version=fresh.version_id, estimates__n_rollouts__gt=0)
            .exclude(pk=fresh.pk)
            .order_by("-pk")
            .first()
        )
        if earlier is None:
            return False
        TaskEstimate.objects.bulk_create(
            TaskEstimate(
                curriculum=fresh,
                task_id=estimate.task_id,
                successes=estimate.successes,
                failures=estimate.failures,
                cost=estimate.cost,
            )
            for estimate in earlier.estimates.all()
        )
    return True


def known_tasks(curriculum: Curriculum, *, exclude: Collection[str] = ()) -> list[Known]:
    """Every train task of the version with what is known of it, by key."""
    estimates = {e.task_id: e for e in TaskEstimate.objects.filter(curriculum=curriculum)}
    tasks = Task.objects.filter(version=curriculum.version_id, split=Split.TRAIN).order_by("key")
    found = []
    for pk, key, family in tasks.values_list("pk", "key", "family"):
        if key in exclude:
            continue
        estimate = estimates.get(pk)
        found.append(
            Known(
                key=key,
                group=family,
                successes=estimate.successes if estimate else 0.0,
                failures=estimate.failures if estimate else 0.0,
                cost=estimate.cost if estimate else 0.0,
            )
        )
    return found


def _sample(curriculum: Curriculum, tasks: Sequence[Known], n: int) -> list[str]:
    arguments = {"seed": curriculum.seed, "n_draws": curriculum.n_draws, "n": n}
    if curriculum.kind == SamplerKind.SEQUENTIAL:
        return samplers.sequential(tasks, **arguments)
    if curriculum.kind == SamplerKind.UNIFORM:
        return samplers.uniform(tasks, **arguments)
    settings = SamplerSettings.from_json(curriculum.settings)
    return samplers.signal(tasks, settings, **arguments)


def _count_draws(curriculum: Curriculum, keys: Sequence[str]) -> None:
    ids = Task.objects.filter(version=curriculum.version_id, key__in=keys).values_list(
        "pk", flat=True
    )
    TaskEstimate.objects.bulk_create(
        [TaskEstimate(curriculum=curriculum, task_id=pk) for pk in ids], ignore_conflicts=True
    )
    TaskEstimate.objects.filter(curriculum=curriculum, task_id__in=ids).update(
        n_draws=F("n_draws") + 1
    )
