"""Runs and rollouts.

A run is a batch of rollouts on one environment version, graded by one rubric version, with one
model and one version of its weights. Its rollouts are facts, unique per (run, harness, task,
replicate); the seed of each is a hash of these, so that a run which resumes asks exactly for the
rollouts that have no result. A rollout that was cut off by a kill ends as errored, with what it had
done, and a new one takes its place: `retry_of` names the old one, which counts no more.

A score has four states; only `scored` has a number, which database constraints keep.
"""

from __future__ import annotations

from django.db import models


class Purpose(models.TextChoices):
    BASELINE = "baseline", "Baseline"
    OPTIMISE = "optimise", "Optimise"
    CERTIFY = "certify", "Certify"
    TRAIN = "train", "Train"
    EVALUATE = "evaluate", "Evaluate"
    CI = "ci", "CI"


class RunState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    COMPLETED = "completed", "completed"
    COMPLETED_UNSCORED = "completed_unscored", "completed, too few scored"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


ENDED_RUN_STATES = (
    RunState.COMPLETED,
    RunState.COMPLETED_UNSCORED,
    RunState.FAILED,
    RunState.CANCELLED,
)


class Run(models.Model):
    project = models.ForeignKey("projects.Project", on_delete=models.CASCADE, related_name="runs")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="run")
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="runs")
    # Null means that nobody asks under a name; an empty text could exist only once.
    key = models.CharField(max_length=120, null=True, unique=True)  # noqa: DJ001
    """Names the run for whoever asked for it, so that asking twice makes one run."""
    purpose = models.CharField(max_length=12, choices=Purpose.choices)
    label = models.CharField(max_length=120, blank=True)
    state = models.CharField(max_length=20, choices=RunState.choices, default=RunState.QUEUED)
    environment_version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.PROTECT, related_name="runs"
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", on_delete=models.PROTECT, related_name="runs"
    )
    model = models.ForeignKey("agents.ModelEndpoint", on_delete=models.PROTECT, related_name="runs")
    adapter_name = models.CharField(max_length=120, blank=True)
    adapter_path = models.CharField(max_length=400, blank=True)
    sampling = models.JSONField(default=dict)
    """Overrides of the harness's sampling parameters."""
    concurrency = models.PositiveSmallIntegerField(default=32)
    seed = models.BigIntegerField(default=0)
    error = models.TextField(blank=True)
    isolation = models.JSONField(default=dict)
    """What kept agents' commands and environment code apart: {"mode", "is_weak", "reason"}."""
    warnings = models.JSONField(default=list)
    """What a reader must know before believing the numbers: [{"code", "text"}, ...]."""
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["project", "-id"])]

    def __str__(self) -> str:
        return f"run {self.pk}"

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_RUN_STATES


class RolloutState(models.TextChoices):
    PENDING = "pending", "pending"
    RUNNING = "running", "running"
    JUDGING = "judging", "waits for its group"
    """Its episode is over; it is compared with the others of its task once they are."""
    SCORED = "scored", "scored"
    ERRORED = "errored", "errored"
    NOT_APPLICABLE = "not_applicable", "not applicable"
    CANCELLED = "cancelled", "cancelled"


ATTEMPTED_AGAIN = (RolloutState.PENDING, RolloutState.RUNNING)
"""Without an episode that has come to its end."""
OPEN_ROLLOUT_STATES = (*ATTEMPTED_AGAIN, RolloutState.JUDGING)


class CountedRollouts(models.Manager["Rollout"]):
    """Without those that a retry has replaced."""

    def get_queryset(self) -> models.QuerySet[Rollout]:
        return super().get_queryset().filter(is_replaced=False)


class Rollout(models.Model):
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rollouts")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="rollout")
    harness = models.ForeignKey(
        "optimizer.HarnessVersion", on_delete=models.PROTECT, related_name="rollouts"
    )
    task = models.ForeignKey("environments.Task", on_delete=models.PROTECT, related_name="rollouts")
    replicate = models.PositiveIntegerField(default=0)
    seed = models.BigIntegerField()
    state = models.CharField(
        max_length=16, choices=RolloutState.choices, default=RolloutState.PENDING
    )
    attempt = models.PositiveSmallIntegerField(default=0)
    """1 for the first; 0 before it started."""
    retry_of = models.OneToOneField(
        "self", null=True, on_delete=models.SET_NULL, related_name="retry"
    )
    is_replaced = models.BooleanField(default=False)
    """Its worker was lost, and a retry has taken its place."""
    score = models.FloatField(null=True)
    reward = models.FloatField(null=True)
    """What the environment itself gave; null when it gave nothing."""
    cause = models.CharField(max_length=32, blank=True)
    message = models.TextField(blank=True)
    answer = models.TextField(blank=True)
    n_steps = models.PositiveSmallIntegerField(default=0)
    tokens_in = models.PositiveIntegerField(default=0)
    tokens_out = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    latency_s = models.FloatField(null=True)
    weight_version = models.CharField(max_length=120, blank=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects = CountedRollouts()
    everything = models.Manager["Rollout"]()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "harness", "task", "replicate"],
                condition=models.Q(is_replaced=False),
                name="rollout_once",
            ),
            models.CheckConstraint(
                condition=(
                    models.Q(state="scored", score__isnull=False)
                    | (~models.Q(state="scored") & models.Q(score__isnull=True))
                ),
                name="score_only_when_scored",
            ),
            models.CheckConstraint(
                condition=~models.Q(state="errored") | ~models.Q(message=""),
                name="error_has_a_reason",
            ),
        ]
        indexes = [
            # What runs and lists are summed over, without a look at the rows.
            models.Index(
                fields=["run", "state", "score", "cost_usd", "tokens_in", "tokens_out"],
                condition=models.Q(is_replaced=False),
                name="rollout_amounts",
            ),
            models.Index(fields=["score", "id"], name="rollout_by_score"),
            models.Index(fields=["started_at", "id"], name="rollout_by_start"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk}"


class VerdictRecord(models.Model):
    """What one criterion says of one rollout."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="verdicts")
    criterion = models.CharField(max_length=64)
    name = models.CharField(max_length=120)
    state = models.CharField(max_length=16)
    value = models.FloatField(null=True)
    reason = models.TextField()
    cites = models.JSONField(default=list)
    detail = models.JSONField(default=dict)
    """What it rests on beside the trace: ids of judge calls, members of a panel, printed output."""

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["rollout", "criterion"], name="one_verdict_each")
        ]
        indexes = [
            # With the state, PostgreSQL need not look at the verdicts themselves.
            models.Index(
                fields=["criterion", "value", "rollout"], include=["state"], name="verdict_values"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.criterion}: {self.state}"


class TokenRow(models.Model):
    """Tokens of a rollout as they were sampled.

    A new row starts where a prompt is not an exact extension of the one before.
    """

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="token_rows")
    index = models.PositiveSmallIntegerField()
    ids = models.JSONField()
    kinds = models.JSONField()
    """Runs of equal kinds: [["context", 220], ["action", 9], ...]."""
    logprobs = models.JSONField()
    """Sampler log-probability at the sampling temperature, for the action tokens in order."""
    weight_version = models.CharField(max_length=120, blank=True)

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["rollout", "index"], name="token_row_index")]

    def __str__(self) -> str:
        return f"row {self.index} of {self.rollout_id}"


class ListKind(models.TextChoices):
    ROLLOUTS = "rollouts", "rollouts"
    RUNS = "runs", "runs"


class SavedView(models.Model):
    """A filter, an order and columns of a list under a name: one person's, or the project's."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="saved_views"
    )
    owner = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="saved_views")
    of = models.CharField(max_length=10, choices=ListKind.choices)
    name = models.CharField(max_length=80)
    query = models.TextField(blank=True)
    sort = models.CharField(max_length=40, blank=True)
    columns = models.JSONField(default=list)
    """Names of columns in order; empty for the usual ones."""
    is_shared = models.BooleanField(default=False)
    """Everybody in the project sees it; it stays its owner's."""
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "owner", "of", "name"], name="one_view_of_a_name"
            )
        ]

    def __str__(self) -> str:
        return self.name
