"""The same training at several values of lambda, over the same seeds, as one object."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace

from django.db import transaction
from django.utils import timezone

from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.models import Rollout, RolloutState
from orchestrator.trainings import services
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.origins import Work
from orchestrator.trainings.own import NAME as OWN
from orchestrator.trainings.scheduling import schedule
from orchestrator.trainings.settings import TrainSettings
from orchestrator.trainings.sweep_verdict import Verdict, judge
from rubrics.models import RubricVersion
from training.models import (
    ENDED_TRAINING_STATES,
    Sweep,
    TrainingJob,
    TrainingRunKind,
    TrainingState,
)

MAX_JOBS = 24


def start_sweep(
    *,
    actor: User,
    project: Project,
    name: str,
    environment_version: EnvironmentVersion,
    rubric_version: RubricVersion,
    model: ModelEndpoint,
    harness: HarnessVersion,
    settings: TrainSettings,
    lambdas: Sequence[float],
    seeds: Sequence[int],
) -> Sweep:
    """One job per value and seed, seed by seed, so that a broken value shows early.

    Raises TrainingRefused.
    """
    require(actor, project, Role.EDITOR)
    values = sorted(set(lambdas))
    seeds = sorted(set(seeds))
    _check(values, seeds, settings)
    with transaction.atomic():
        sweep = Sweep.objects.create(
            project=project,
            name=name.strip()[:120] or "λ sweep",
            lambdas=values,
            seeds=seeds,
            created_by=actor,
        )
        for seed in seeds:
            for value in values:
                work = Work(
                    environment_version,
                    rubric_version,
                    model,
                    harness,
                    replace(settings, env_loss_weight=value),
                    seed,
                )
                services.check_work(work)
                try:
                    services.create_job(
                        project=project,
                        work=work,
                        origin=OWN,
                        name=f"{sweep.name}, λ {value:g}, seed {seed}"[:120],
                        sweep=sweep,
                        created_by=actor,
                    )
                except ValueError as error:
                    raise TrainingRefused(str(error)) from error
        schedule()
    return sweep


def _check(values: Sequence[float], seeds: Sequence[int], settings: TrainSettings) -> None:
    if len(values) < 2:
        raise TrainingRefused("A sweep compares at least two values of λ.")
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise TrainingRefused("A λ is 0 or more.")
    if not seeds or any(seed < 0 for seed in seeds):
        raise TrainingRefused("A sweep needs at least one seed, 0 or more.")
    if len(values) * len(seeds) > MAX_JOBS:
        raise TrainingRefused(
            f"{len(values)} values over {len(seeds)} seeds are {len(values) * len(seeds)} jobs; "
            f"a sweep has at most {MAX_JOBS}."
        )
    if settings.evaluate_every == 0:
        raise TrainingRefused("A sweep is decided by held-out evaluations: let it have some.")


def cancel_sweep(*, actor: User, sweep: Sweep) -> None:
    """Ends what has not ended; the verdict is on what there is."""
    require(actor, sweep.project, Role.EDITOR)
    # Waiting ones first: else the device of the first goes to the next.
    for job in sweep.jobs.exclude(state__in=ENDED_TRAINING_STATES).order_by("device", "-id"):
        services.cancel_training(actor=actor, job=job)


def conclude(sweep_id: int) -> Verdict | None:
    """The verdict, once every job has ended. Needs the transaction that ended the last one."""
    sweep = Sweep.objects.select_for_update().get(pk=sweep_id)
    if sweep.jobs.exclude(state__in=ENDED_TRAINING_STATES).exists() or sweep.ended_at:
        return None
    verdict = current_verdict(sweep)
    sweep.verdict = asdict(verdict)
    sweep.ended_at = timezone.now()
    sweep.save(update_fields=["verdict", "ended_at"])
    return verdict


def current_verdict(sweep: Sweep) -> Verdict:
    """On the jobs that have completed so far."""
    scores: dict[float, dict[int, dict[str, float]]] = defaultdict(dict)
    for job in sweep.jobs.filter(state=TrainingState.COMPLETED):
        found = _held_out(job)
        if found:
            scores[lambda_of(job)][int(job.manifest["seed"])] = found
    return judge(scores, sweep.lambdas)


def lambda_of(job: TrainingJob) -> float:
    return float(job.manifest["objective"]["lambda_env"])


def _held_out(job: TrainingJob) -> dict[str, float]:
    """Mean score per task of the weights that the job chose."""
    rollouts = Rollout.objects.filter(
        run__training_run__training_job=job,
        run__training_run__kind=TrainingRunKind.EVALUATION,
        run__training_run__step=job.chosen_step,
        state=RolloutState.SCORED,
    )
    by_task: dict[str, list[float]] = defaultdict(list)
    for key, score in rollouts.values_list("task__key", "score"):
        if score is not None:
            by_task[key].append(score)
    return {key: math.fsum(values) / len(values) for key, values in by_task.items()}
