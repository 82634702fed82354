from __future__ import annotations

from django.db import models
from django.db.models import Q


class JobState(models.TextChoices):
    QUEUED = "queued", "Queued"
    """Waits for a worker."""
    RUNNING = "running", "Running"
    """A worker holds the lease; after `lease_until` any other may take it."""
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    """Ended by an error, or by too many attempts; `error` says which."""
    CANCELLED = "cancelled", "Cancelled"


ENDED_STATES = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class Job(models.Model):
    kind = models.CharField(max_length=100)
    """Names the handler, as `run.execute`."""
    queue = models.CharField(max_length=50, default="default")
    spec = models.JSONField(default=dict)
    """The handler's input, never changed after creation."""
    version = models.PositiveSmallIntegerField(default=1, db_default=1)
    """Of what `spec` means; a worker whose handler is older leaves the job to others."""
    key = models.CharField(max_length=200, unique=True, null=True, blank=True)
    """Makes enqueueing idempotent: a second job with the same key is the first one."""

    origin = models.JSONField(default=dict)
    """Who asked: `request_id`, `job_id` and `traceparent`, as far as there are any. For logs and
    traces alone."""

    state = models.CharField(max_length=10, choices=JobState.choices, default=JobState.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    """The fencing token: grows with every claim, never falls."""
    strikes = models.PositiveIntegerField(default=0)
    """Claims since the last sign of progress; a graceful release takes its claim back."""
    max_attempts = models.PositiveIntegerField(default=5)
    """The job fails when `strikes` would exceed it."""
    worker = models.CharField(max_length=200, blank=True)
    """Host and process id of the last claim."""
    lease_until = models.DateTimeField()
    """Running: when the lease ends. Queued: until when the sweep stays silent."""
    not_before = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    announced_count = models.PositiveIntegerField(default=0)
    """Announcements since the job was queued; drives the back-off of the next."""
    announced_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    """The first claim."""
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["state", "lease_until"], name="job_state_lease")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=JobState.values), name="job_state_known"),
        ]

    def __str__(self) -> str:
        return f"job {self.pk} ({self.kind}, {self.state}, attempt {self.attempt})"

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES
