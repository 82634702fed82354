"""Training jobs and checkpoints, as Django sees them: rows and files, never torch."""

from __future__ import annotations

from django.db import models


class TrainingState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


class TrainingJob(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="training_jobs"
    )
    stream = models.OneToOneField(
        "events.Stream", on_delete=models.PROTECT, related_name="training_job"
    )
    job = models.ForeignKey(
        "jobs.Job", null=True, on_delete=models.SET_NULL, related_name="training_jobs"
    )
    # Null means that nobody asks under a name; an empty text could exist only once.
    key = models.CharField(max_length=120, null=True, unique=True)  # noqa: DJ001
    folder = models.CharField(max_length=400)
    manifest = models.JSONField()
    manifest_sha256 = models.CharField(max_length=64)
    state = models.CharField(
        max_length=12, choices=TrainingState.choices, default=TrainingState.QUEUED
    )
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField()
    adapter_path = models.CharField(max_length=400, blank=True)
    adapter_sha256 = models.CharField(max_length=64, blank=True)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"training job {self.pk}"


class Checkpoint(models.Model):
    training_job = models.ForeignKey(
        TrainingJob, on_delete=models.CASCADE, related_name="checkpoints"
    )
    step = models.PositiveIntegerField()
    path = models.CharField(max_length=400)
    metrics = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["step"]
        constraints = [
            models.UniqueConstraint(fields=["training_job", "step"], name="one_checkpoint_per_step")
        ]

    def __str__(self) -> str:
        return f"step {self.step}"
