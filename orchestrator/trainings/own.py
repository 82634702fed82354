"""Jobs of their own: started by a person or a sweep, outside any climb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import transaction

from orchestrator.environments.curriculum.samplers import SamplerSettings
from orchestrator.environments.curriculum.store import draw, observe, open_curriculum
from orchestrator.environments.models import Curriculum, Split, Task
from orchestrator.events.services import Fence, NewEvent, hold_fence
from orchestrator.grading.policies import barred, rewards
from orchestrator.runs.models import Rollout, RolloutState, Run
from orchestrator.runs.seeds import derive_seed
from orchestrator.runs.services import RunSpec, create_run
from orchestrator.trainings.origins import Asked, Work, register
from orchestrator.trainings.settings import TrainSettings
from training.models import ENDED_TRAINING_STATES, TrainingJob, TrainingRun

NAME = "own"
CONCURRENCY = 32


def curriculum_key(job_id: int) -> str:
    return f"training-{job_id}"


class OwnOrigin:
    """See `origins.Origin`."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        missing = [
            name
            for name in ("environment_version", "rubric_version", "model", "harness")
            if getattr(job, name) is None
        ]
        if missing:
            raise LookupError(f"{job} has no {', '.join(missing)}")
        assert job.environment_version and job.rubric_version and job.model and job.harness
        self.work = Work(
            environment_version=job.environment_version,
            rubric_version=job.rubric_version,
            model=job.model,
            harness=job.harness,
            settings=TrainSettings.from_json(job.settings),
            seed=int(job.manifest["seed"]),
        )

    def tasks(self, step: int) -> list[Task]:
        from orchestrator.trainings.keeper import told_sources

        settings = self.work.settings
        curriculum = open_curriculum(
            version=self.work.environment_version,
            key=curriculum_key(self._job.pk),
            kind=settings.sampler,
            settings=SamplerSettings.from_json(
                {"group_size": max(2, settings.samples), **settings.sampler_settings}
            ),
            seed=self.work.seed,
        )
        told = told_sources(self.work.harness)
        return draw(curriculum=curriculum, step=step, n=settings.groups, exclude=told)

    def ask(self, asked: Asked, fence: Fence) -> Run:
        key = f"training-{self._job.pk}-{asked.key}"
        existing = Run.objects.filter(key=key).first()
        if existing is not None:
            return existing
        with transaction.atomic():
            hold_fence(fence)
            run = create_run(
                key=key,
                plan=asked.plan,
                spec=RunSpec(
                    project=self._job.project,
                    purpose=asked.purpose,
                    label=f"{self._job}: {asked.label}"[:120],
                    environment_version=self.work.environment_version,
                    rubric_version=self.work.rubric_version,
                    model=self.work.model,
                    seed=derive_seed(self.work.seed, *asked.seed_parts),
                    adapter_name=asked.adapter_name,
                    adapter_path=asked.adapter_path,
                    sampling={"temperature": self.work.settings.temperature},
                    concurrency=CONCURRENCY,
                ),
            )
            TrainingRun.objects.create(
                training_job=self._job,
                run=run,
                kind=asked.kind,
                step=asked.step,
                left_out=barred(self.work.rubric_version.rubric_id),
            )
        return run

    def rewards(self, run: Run) -> Mapping[int, float | None]:
        asked = TrainingRun.objects.get(run=run)
        return rewards(run.rollouts.select_related("run__rubric_version"), asked.left_out)

    def tell(self, events: Sequence[NewEvent], fence: Fence | None) -> None:
        """Its own stream is all that there is."""

    def pause(self, reason: str, fence: Fence | None) -> None:
        TrainingJob.objects.filter(pk=self._job.pk).exclude(state__in=ENDED_TRAINING_STATES).update(
            pause_reason=reason
        )

    def ended(self, job: TrainingJob) -> None:
        if job.sweep_id is not None:
            from orchestrator.trainings.sweeps import conclude

            conclude(job.sweep_id)


def learn_from(rollout: Rollout) -> None:
    """Counts a scored rollout of a train task. Needs the transaction in which it ended."""
    if rollout.state != RolloutState.SCORED or rollout.task.split != Split.TRAIN:
        return
    asked = TrainingRun.objects.filter(run_id=rollout.run_id).select_related("training_job").first()
    if asked is None or asked.training_job.origin != NAME:
        return
    curriculum = Curriculum.objects.filter(key=curriculum_key(asked.training_job_id)).first()
    if curriculum is None:
        return
    score = rewards([rollout], asked.left_out)[rollout.pk] if asked.left_out else rollout.score
    if score is not None:
        observe(
            curriculum=curriculum,
            rollout_id=rollout.pk,
            task_id=rollout.task_id,
            score=score,
            cost=float(rollout.tokens_in + rollout.tokens_out),
        )


register(NAME, OwnOrigin)
