"""What `Check environment` found, for each version; the newest finished check counts."""

from __future__ import annotations

from django.db import models


class CheckState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    """The check itself could not be made; says nothing about the environment."""
    CANCELLED = "cancelled", "cancelled"


class CheckStatus(models.TextChoices):
    PASS = "pass", "pass"
    WARN = "warn", "warning"
    FAIL = "fail", "fail"
    SKIP = "skip", "not applicable"
    ERROR = "error", "could not be checked"


class EnvironmentCheck(models.Model):
    version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.CASCADE, related_name="checks"
    )
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    state = models.CharField(max_length=10, choices=CheckState.choices, default=CheckState.QUEUED)
    error = models.TextField(blank=True)
    n_total = models.PositiveSmallIntegerField(default=0)
    """How many checks it makes, for progress."""
    asked_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"check {self.pk} of {self.version}"


class CheckResult(models.Model):
    """One grader's finding."""

    check_run = models.ForeignKey(
        EnvironmentCheck, on_delete=models.CASCADE, related_name="results"
    )
    check_id = models.CharField(max_length=64)
    status = models.CharField(max_length=8, choices=CheckStatus.choices)
    measured = models.JSONField(default=dict)
    evidence = models.TextField(blank=True)
    remediation = models.TextField(blank=True)
    duration_s = models.FloatField(default=0.0)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["check_run", "check_id"], name="one_result_each")
        ]

    def __str__(self) -> str:
        return f"{self.check_id}: {self.status}"
