"""Projects on their way in and out, rules of retention and their runs."""

from __future__ import annotations

from django.db import models


class Direction(models.TextChoices):
    EXPORT = "export", "export"
    IMPORT = "import", "import"


class WorkState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


OPEN_STATES = (WorkState.QUEUED, WorkState.RUNNING)


class Transfer(models.Model):
    """A project written into a file, or made of one."""

    direction = models.CharField(max_length=6, choices=Direction.choices)
    project = models.ForeignKey(
        "projects.Project", null=True, on_delete=models.CASCADE, related_name="transfers"
    )
    """Of an import: null until all of it is there."""
    draft_id = models.BigIntegerField(null=True)
    """Of an import under way: the project that is being filled, which nobody sees yet."""
    name = models.CharField(max_length=100)
    """Of the project, at the time."""
    with_checkpoints = models.BooleanField(default=False)
    state = models.CharField(max_length=10, choices=WorkState.choices, default=WorkState.QUEUED)
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    done = models.PositiveBigIntegerField(default=0)
    """Rows so far."""
    total = models.PositiveBigIntegerField(default=0)
    """Rows in all; 0 while it is not known."""
    doing = models.CharField(max_length=100, blank=True)
    file_sha256 = models.CharField(max_length=64, blank=True)
    """Names the file in the blob store; empty before it is written and after it is removed."""
    size_bytes = models.PositiveBigIntegerField(default=0)
    summary = models.JSONField(default=dict)
    """Rows by table, endpoints without a key, what was left out."""
    error = models.TextField(blank=True)
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.direction} {self.pk} of {self.name}"

    @property
    def has_ended(self) -> bool:
        return self.state not in OPEN_STATES


class What(models.TextChoices):
    TRACES = "traces", "Traces of rollouts"
    RUNS = "runs", "Whole runs"
    CHECKPOINTS = "checkpoints", "Checkpoints"
    JUDGE_CALLS = "judge_calls", "Logs of judge calls"
    DELIVERIES = "deliveries", "Logs of webhook deliveries"
    ARCHIVES = "archives", "Files of exports"


class RetentionRule(models.Model):
    """What of a project may go, and when. Without a rule nothing goes."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="retention_rules"
    )
    what = models.CharField(max_length=12, choices=What.choices)
    days = models.PositiveIntegerField()
    """Since it ended."""
    purposes = models.JSONField(default=list, blank=True)
    """Of runs, for traces and runs; empty: all."""
    grace_days = models.PositiveIntegerField(default=7)
    """Between being marked and going, in which it can be kept after all."""
    changed_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "what"], name="one_retention_rule")
        ]

    def __str__(self) -> str:
        return f"{self.what} after {self.days} days"


class RetentionRun(models.Model):
    """One look at what may go: a dry run, or one that marks and removes."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="retention_runs"
    )
    is_dry = models.BooleanField()
    state = models.CharField(max_length=10, choices=WorkState.choices, default=WorkState.QUEUED)
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    found = models.JSONField(default=list)
    """One object for each rule: what is due, what is protected and why, what was removed."""
    error = models.TextField(blank=True)
    asked_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    """Null: the daily look."""
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"retention {self.pk}"

    @property
    def has_ended(self) -> bool:
        return self.state not in OPEN_STATES


class RetentionMark(models.Model):
    """A thing that goes at `due_at`, unless somebody keeps it until then."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="retention_marks"
    )
    run = models.ForeignKey(RetentionRun, on_delete=models.CASCADE, related_name="marks")
    what = models.CharField(max_length=12, choices=What.choices)
    object_id = models.BigIntegerField()
    due_at = models.DateTimeField()
    kept_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    kept_at = models.DateTimeField(null=True)
    """Set: it stays, and no later run marks it again."""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "what", "object_id"], name="one_retention_mark"
            )
        ]
        indexes = [models.Index(fields=["project", "what", "due_at"])]

    def __str__(self) -> str:
        return f"{self.what} {self.object_id} until {self.due_at:%Y-%m-%d}"
