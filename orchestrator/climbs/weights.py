"""The ECHO rung: a climb as the origin of a training job.

What keeps the trainer is `orchestrator.trainings`; here is what makes it a rung: its rollouts are
counted in the climb's budget, its rewards leave out what the climb may not learn from, its news are
told on the climb's stream, and its end moves the climb.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import transaction

from orchestrator.climbs.asking import ask_for_run
from orchestrator.climbs.curricula import training_tasks
from orchestrator.climbs.learning import rewards_of_run
from orchestrator.climbs.models import Climb, ClimbState, Rung, RungKind
from orchestrator.climbs.services import fail_climb, pause_climb_for, queue_advance
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.models import Task
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.runs.models import ENDED_RUN_STATES, Purpose, Run
from orchestrator.runs.services import end_cancelled_run, end_failed_run
from orchestrator.trainings.keeper import adapter_name, told_sources
from orchestrator.trainings.origins import Asked, Work, register
from orchestrator.trainings.scheduling import schedule
from orchestrator.trainings.services import create_job
from training.jobs.folder import version_name
from training.models import TrainingJob, TrainingState

NAME = "climb"


def final_adapter_name(job: TrainingJob) -> str:
    return adapter_name(job, version_name(job.chosen_step))


def ask_for_training(*, climb: Climb, rung: Rung, fence: Fence) -> TrainingJob | None:
    """The climb's training job once it is complete; made and queued when it does not exist."""
    job = climb.training_job
    if job is None:
        job = _create_job(climb, rung, fence)
    if job.state == TrainingState.COMPLETED:
        return job
    if job.state in (TrainingState.FAILED, TrainingState.CANCELLED):
        with transaction.atomic():
            hold_fence(fence)
            fail_climb(climb=climb, error=f"ECHO training {job.state}: {job.error}")
    return None


def _create_job(climb: Climb, rung: Rung, fence: Fence) -> TrainingJob:
    work = work_of(climb, rung)
    settings = work.settings
    with transaction.atomic():
        hold_fence(fence)
        job = create_job(
            project=climb.project,
            work=work,
            origin=NAME,
            key=f"climb-{climb.pk}",
            climb=climb.pk,
        )
        Climb.objects.filter(pk=climb.pk).update(training_job=job)
        append(
            stream_id=climb.stream_id,
            items=[
                NewEvent(
                    "decision",
                    {
                        "text": (
                            f"Turn to weights: {settings.trained}, {settings.steps} steps of "
                            f"{settings.groups} × {settings.samples} rollouts, "
                            f"λ {settings.env_loss_weight:g} ({settings.env_normalisation})."
                        )
                    },
                )
            ],
            fence=fence,
        )
        schedule()
    job.refresh_from_db()
    return job


def work_of(climb: Climb, rung: Rung) -> Work:
    assert rung.harness is not None  # a rung starts with the harness it trains under
    return Work(
        environment_version=climb.environment_version,
        rubric_version=climb.rubric_version,
        model=climb.model,
        harness=rung.harness,
        settings=ClimbSettings.from_json(climb.config).train,
        seed=climb.seed,
    )


class ClimbOrigin:
    """See `trainings.origins.Origin`."""

    def __init__(self, job: TrainingJob) -> None:
        climb = (
            Climb.objects.select_related(
                "project", "environment_version", "rubric_version", "model"
            )
            .filter(training_job=job)
            .first()
        )
        if climb is None:
            raise LookupError(f"{job} belongs to no climb")
        self._climb = climb
        self._rung = Rung.objects.select_related("harness").get(climb=climb, kind=RungKind.ECHO)
        self.work = work_of(climb, self._rung)

    def tasks(self, step: int) -> list[Task]:
        told = told_sources(self.work.harness)
        return training_tasks(
            climb=self._climb, settings=self.work.settings, step=step, exclude=told
        )

    def ask(self, asked: Asked, fence: Fence) -> Run:
        return ask_for_run(
            climb=self._climb,
            rung=self._rung,
            key=asked.key,
            label=asked.label,
            purpose=asked.purpose,
            plan=asked.plan,
            seed_parts=asked.seed_parts,
            adapter_name=asked.adapter_name,
            adapter_path=asked.adapter_path,
            sampling={"temperature": self.work.settings.temperature},
            queue_job=False,
            fence=fence,
        )

    def rewards(self, run: Run) -> Mapping[int, float | None]:
        return rewards_of_run(run)

    def tell(self, events: Sequence[NewEvent], fence: Fence | None) -> None:
        append(stream_id=self._climb.stream_id, items=events, fence=fence)

    def pause(self, reason: str, fence: Fence | None) -> None:
        pause_climb_for(climb=self._climb, reason=reason, fence=fence)

    def ended(self, job: TrainingJob) -> None:
        """A run that was asked for just before a kill may not be known to the job yet."""
        runs = Run.objects.filter(
            climb_run__climb=self._climb, purpose=Purpose.TRAIN, job__isnull=True
        ).exclude(state__in=ENDED_RUN_STATES)
        for run in runs:
            if job.state == TrainingState.FAILED:
                end_failed_run(run=run, error=job.error)
            else:
                end_cancelled_run(run=run, fence=None)
        queue_advance(climb_id=self._climb.pk, after=f"training-{job.pk}")


def _is_waiting(job_id: int) -> bool:
    return Climb.objects.filter(training_job_id=job_id, state=ClimbState.PAUSED).exists()


register(NAME, ClimbOrigin, is_waiting=_is_waiting)
