"""Training jobs, their checkpoints, runs, alarms, and sweeps, as Django sees them: rows and files.

A job belongs to a climb or was started by itself; then it carries what it trains on. It waits for a
device of its own: a device has one job at a time, which a constraint keeps.
"""

from __future__ import annotations

from django.db import models


class TrainingState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


ENDED_TRAINING_STATES = (TrainingState.COMPLETED, TrainingState.FAILED, TrainingState.CANCELLED)


class Sweep(models.Model):
    """The same training at several values of lambda, over the same seeds, with one verdict."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="training_sweeps"
    )
    name = models.CharField(max_length=120)
    lambdas = models.JSONField(default=list)
    """Ascending; the first is the baseline that the others are held against."""
    seeds = models.JSONField(default=list)
    verdict = models.JSONField(default=dict)
    """`orchestrator.trainings.sweeps.Verdict` as JSON once every job has ended."""
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name


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
    """What executes it; null while it waits for a device."""
    # Null means that nobody asks under a name; an empty text could exist only once.
    key = models.CharField(max_length=120, null=True, unique=True)  # noqa: DJ001
    name = models.CharField(max_length=120, blank=True)
    origin = models.CharField(max_length=20, default="climb")
    """Who asks for its rollouts: `climb`, or `own` for a job that was started by itself."""
    folder = models.CharField(max_length=400)
    manifest = models.JSONField()
    manifest_sha256 = models.CharField(max_length=64)
    state = models.CharField(
        max_length=12, choices=TrainingState.choices, default=TrainingState.QUEUED
    )
    pause_reason = models.TextField(blank=True)
    """Not empty: it waits between two steps until somebody lets it go on."""
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField()
    adapter_path = models.CharField(max_length=400, blank=True)
    adapter_sha256 = models.CharField(max_length=64, blank=True)
    chosen_step = models.PositiveIntegerField(default=0)
    """The step whose weights are the result."""
    chosen_reason = models.TextField(blank=True)
    error = models.TextField(blank=True)
    failures = models.JSONField(default=list)
    """Attempts that failed since the last finished step: `training.jobs.attempts.Failure`."""

    # --- the queue --------------------------------------------------------------------------
    priority = models.SmallIntegerField(default=0)
    device = models.CharField(max_length=40, blank=True)
    """Empty while it waits for one."""
    estimate = models.JSONField(default=dict)
    """`training.estimate.Estimate` as JSON, made before it was queued."""
    device_s = models.FloatField(default=0.0)
    """Seconds that it has held devices which it has given back."""
    device_since = models.DateTimeField(null=True)
    """Since when it holds the one that it has."""

    # --- what a job of its own trains on ----------------------------------------------------
    settings = models.JSONField(default=dict)
    environment_version = models.ForeignKey(
        "environments.EnvironmentVersion", null=True, on_delete=models.PROTECT, related_name="+"
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.PROTECT, related_name="+"
    )
    model = models.ForeignKey(
        "agents.ModelEndpoint", null=True, on_delete=models.PROTECT, related_name="+"
    )
    harness = models.ForeignKey(
        "optimizer.HarnessVersion", null=True, on_delete=models.PROTECT, related_name="+"
    )
    sweep = models.ForeignKey(Sweep, null=True, on_delete=models.CASCADE, related_name="jobs")
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )

    curves_seq = models.PositiveBigIntegerField(default=0)
    """Up to which event of its stream its curves are packed."""
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["device"],
                condition=models.Q(state__in=["queued", "running"]) & ~models.Q(device=""),
                name="one_training_job_on_a_device",
            )
        ]

    def __str__(self) -> str:
        return self.name or f"training job {self.pk}"

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_TRAINING_STATES

    @property
    def tinker_url(self) -> str:
        """The server that trains it and keeps its weights; empty: they are here."""
        return str((self.manifest.get("tinker") or {}).get("base_url", ""))

    @property
    def trains_adapter(self) -> bool:
        """Whether its checkpoints are adapters on disk."""
        return not self.trains_every_weight and not self.tinker_url

    @property
    def trains_every_weight(self) -> bool:
        """Its checkpoints are whole models then, not adapters."""
        return self.manifest.get("lora", {}) is None


class TrainingRunKind(models.TextChoices):
    STEP = "step", "rollouts of a step"
    EVALUATION = "evaluation", "held-out evaluation"


class TrainingRun(models.Model):
    """Which runs a training job asked for: those that it trains on and those that measure it."""

    training_job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="runs")
    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="training_run")
    kind = models.CharField(max_length=12, choices=TrainingRunKind.choices)
    step = models.PositiveIntegerField()
    """The step that trains on it, or the step after which it measures; 0: before the first."""
    mean = models.FloatField(null=True)
    """Of an evaluation that has ended."""
    n_scored = models.PositiveIntegerField(default=0)
    n_errored = models.PositiveIntegerField(default=0)
    left_out = models.JSONField(default=dict)
    """Criteria that nothing is learned from (id -> why), fixed when the run was asked for."""

    class Meta:
        ordering = ["step", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["training_job", "kind", "step"], name="one_run_per_step_and_kind"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.step} of {self.training_job_id}"


class TrainingCurve(models.Model):
    """One quantity over the steps of a job, packed out of its events so that many are drawn fast.

    Made again from the events at any time (`orchestrator.trainings.curves`).
    """

    training_job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="curves")
    key = models.CharField(max_length=20)
    """Of `training.health.BOARD`, or `at` (seconds since the first step) or `no_score`."""
    data = models.BinaryField()
    """All points: `training.curves.packed`."""
    coarse = models.BinaryField()
    """The same, thinned to a few dozen, for a line among hundreds."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["training_job", "key"], name="one_curve_per_quantity")
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.training_job_id}"


class Checkpoint(models.Model):
    training_job = models.ForeignKey(
        TrainingJob, on_delete=models.CASCADE, related_name="checkpoints"
    )
    step = models.PositiveIntegerField()
    path = models.CharField(max_length=400)
    metrics = models.JSONField(default=dict)
    promoted_at = models.DateTimeField(null=True)
    promoted_as = models.ForeignKey(
        "agents.ModelEndpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    merge = models.JSONField(default=dict)
    """The last merge into full weights: state, folder, largest difference of logits, or why not."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["step"]
        constraints = [
            models.UniqueConstraint(fields=["training_job", "step"], name="one_checkpoint_per_step")
        ]

    def __str__(self) -> str:
        return f"step {self.step}"


class TrainingAlarm(models.Model):
    """A finding of `training.alarms`; one per signal until somebody has seen it."""

    training_job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="alarms")
    signal = models.CharField(max_length=20)
    level = models.CharField(max_length=8)
    """`warn` or `pause`."""
    step = models.PositiveIntegerField()
    before = models.FloatField(null=True)
    value = models.FloatField()
    sentence = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.signal} at step {self.step}"


class TrainingQuota(models.Model):
    """What a project may take of the devices; without one, fair share alone decides."""

    project = models.OneToOneField(
        "projects.Project", on_delete=models.CASCADE, related_name="training_quota"
    )
    max_running = models.PositiveSmallIntegerField(null=True)
    """Jobs at a time."""
    device_s_per_day = models.PositiveIntegerField(null=True)
    """Seconds on devices within 24 hours."""

    def __str__(self) -> str:
        return f"quota of {self.project_id}"
