"""Climbs: the ladder of rungs and the decisions between them.

A climb's phase says what it does next; everything that phase needs is asked for under a key, so
that doing it again after a kill finds what is there. A rung without a verdict is not done; a rung
that did not help says so.
"""

from __future__ import annotations

from django.db import models


class ClimbState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    PAUSED = "paused", "paused"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


ENDED_CLIMB_STATES = (ClimbState.COMPLETED, ClimbState.FAILED, ClimbState.CANCELLED)


class Phase(models.TextChoices):
    BASELINE = "baseline", "Baseline on the sealed test"
    SEARCH = "search", "Harness search"
    HARNESS_TEST = "harness_test", "Harness on the sealed test"
    TRAIN = "train", "ECHO training"
    ECHO_TEST = "echo_test", "Trained weights on the sealed test"
    DONE = "done", "Done"


class Climb(models.Model):
    project = models.ForeignKey("projects.Project", on_delete=models.CASCADE, related_name="climbs")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="climb")
    name = models.CharField(max_length=120)
    state = models.CharField(max_length=12, choices=ClimbState.choices, default=ClimbState.QUEUED)
    phase = models.CharField(max_length=16, choices=Phase.choices, default=Phase.BASELINE)
    environment_version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.PROTECT, related_name="climbs"
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", on_delete=models.PROTECT, related_name="climbs"
    )
    model = models.ForeignKey(
        "agents.ModelEndpoint", on_delete=models.PROTECT, related_name="climbs"
    )
    seed_harness = models.ForeignKey(
        "optimizer.HarnessVersion", on_delete=models.PROTECT, related_name="+"
    )
    search = models.OneToOneField(
        "optimizer.Search", null=True, on_delete=models.SET_NULL, related_name="climb"
    )
    training_job = models.OneToOneField(
        "training.TrainingJob", null=True, on_delete=models.SET_NULL, related_name="climb"
    )
    config = models.JSONField(default=dict)
    """`orchestrator.climbs.settings.ClimbSettings` as JSON."""
    advice = models.JSONField(default=dict)
    """What the plateau rule said at the last turn: see `orchestrator.climbs.turns`."""
    overruled = models.CharField(max_length=8, blank=True)
    """What a person has decided comes at the next turn instead: harness, weights or stop."""
    seed = models.BigIntegerField(default=0)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_CLIMB_STATES


class RungKind(models.TextChoices):
    BASELINE = "baseline", "Baseline"
    HARNESS = "harness", "Harness"
    ECHO = "echo", "ECHO weights"


class RungState(models.TextChoices):
    PENDING = "pending", "pending"
    RUNNING = "running", "running"
    DONE = "done", "done"
    FAILED = "failed", "failed"


class Rung(models.Model):
    climb = models.ForeignKey(Climb, on_delete=models.CASCADE, related_name="rungs")
    index = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=12, choices=RungKind.choices)
    state = models.CharField(max_length=8, choices=RungState.choices, default=RungState.PENDING)
    harness = models.ForeignKey(
        "optimizer.HarnessVersion", null=True, on_delete=models.PROTECT, related_name="+"
    )
    search = models.OneToOneField(
        "optimizer.Search", null=True, on_delete=models.SET_NULL, related_name="rung"
    )
    """Of a harness rung."""
    adapter_name = models.CharField(max_length=120, blank=True)
    adapter_sha256 = models.CharField(max_length=64, blank=True)
    test_run = models.OneToOneField(
        "runs.Run", null=True, on_delete=models.SET_NULL, related_name="rung"
    )
    comparison = models.OneToOneField(
        "optimizer.Comparison", null=True, on_delete=models.SET_NULL, related_name="rung"
    )
    verdict = models.CharField(max_length=16, blank=True)
    """reference, better, regressed, inconclusive or infrastructure; empty until it is known."""
    score = models.FloatField(null=True)
    score_low = models.FloatField(null=True)
    score_high = models.FloatField(null=True)
    n_scored = models.PositiveIntegerField(default=0)
    n_errored = models.PositiveIntegerField(default=0)
    rollouts_spent = models.PositiveIntegerField(default=0)
    tokens_spent = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    progress = models.FloatField(default=0.0)
    """Share of the rung's work that is done, 0 to 1."""
    doing = models.CharField(max_length=200, blank=True)
    sentence = models.TextField(blank=True)
    certificate = models.JSONField(default=dict)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["index"]
        constraints = [
            models.UniqueConstraint(fields=["climb", "index"], name="rung_index_in_climb")
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.climb}"


class ClimbRun(models.Model):
    """Which runs a climb asked for, and in which phase."""

    climb = models.ForeignKey(Climb, on_delete=models.CASCADE, related_name="climb_runs")
    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="climb_run")
    rung_index = models.PositiveSmallIntegerField()
    phase = models.CharField(max_length=16, choices=Phase.choices)
    left_out = models.JSONField(default=dict)
    """Criteria that nothing is learned from (id -> why), fixed when the run was asked for."""

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.phase} {self.run_id}"
