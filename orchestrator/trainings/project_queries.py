"""What the API reads of the trainings of a project: jobs, checkpoints, sweeps, alarms."""

from __future__ import annotations

from django.db.models import QuerySet

from training.models import Checkpoint, Sweep, TrainingAlarm, TrainingJob


def trainings_in(project_id: int) -> QuerySet[TrainingJob]:
    trainings = TrainingJob.objects.filter(project_id=project_id)
    return trainings.select_related(
        *("project", "job", "environment_version__environment"),
        *("rubric_version__rubric", "model"),
    )


def checkpoints_in(project_id: int) -> QuerySet[Checkpoint]:
    """Checkpoints of all trainings of a project."""
    checkpoints = Checkpoint.objects.filter(training_job__project_id=project_id)
    return checkpoints.select_related("training_job__project", "promoted_as")


def sweeps_in(project_id: int) -> QuerySet[Sweep]:
    return Sweep.objects.filter(project_id=project_id).prefetch_related("jobs")


def training_alarms(job_id: int) -> QuerySet[TrainingAlarm]:
    """All that a training has warned of."""
    alarms = TrainingAlarm.objects.filter(training_job_id=job_id)
    return alarms.select_related("acknowledged_by", "training_job__project")
