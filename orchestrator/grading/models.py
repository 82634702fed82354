"""Rubrics at work: drafts, golden cases, back-tests, other gradings of past rollouts, attacks.

A rollout keeps the score that its run gave it. Grading it again under another version adds a row
beside it and changes nothing.
"""

from __future__ import annotations

from django.db import models


class RubricDraft(models.Model):
    """A rubric while it is written. A writer names the revision that it saw."""

    rubric = models.OneToOneField("rubrics.Rubric", on_delete=models.CASCADE, related_name="draft")
    base = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    spec = models.JSONField()
    """May be unfinished; checked when it is published."""
    revision = models.PositiveIntegerField(default=0)
    updated_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"draft of {self.rubric}"


class GoldenExpectation(models.TextChoices):
    PASS = "pass", "must pass"
    FAIL = "fail", "must fail"


class GoldenCase(models.Model):
    """A transcript whose verdict everybody agrees on."""

    rubric = models.ForeignKey(
        "rubrics.Rubric", on_delete=models.CASCADE, related_name="golden_cases"
    )
    name = models.CharField(max_length=120)
    expect = models.CharField(max_length=4, choices=GoldenExpectation.choices)
    criterion = models.CharField(max_length=64, blank=True)
    """Empty: the rollout's score against the rubric's pass threshold."""
    transcript = models.JSONField()
    """`rubrics.types.Transcript` as JSON: a copy, so that it stays when the rollout goes."""
    rollout = models.ForeignKey(
        "runs.Rollout", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rubric", "name"], name="golden_name_in_rubric")
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.get_expect_display()}"


class RegradePurpose(models.TextChoices):
    REGRADE = "regrade", "re-grade"
    BACKTEST = "backtest", "back-test of a draft"
    HELD_OUT = "held_out", "held-out rubric"


class RegradeState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


class Regrade(models.Model):
    """A set of past rollouts graded by another spec, in the background."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="regrades"
    )
    rubric = models.ForeignKey("rubrics.Rubric", on_delete=models.CASCADE, related_name="regrades")
    version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.CASCADE, related_name="regrades"
    )
    """Null for a draft's spec."""
    spec = models.JSONField()
    purpose = models.CharField(max_length=10, choices=RegradePurpose.choices)
    selection = models.JSONField(default=dict)
    """How the rollouts were chosen, for people."""
    n_total = models.PositiveIntegerField(default=0)
    state = models.CharField(
        max_length=10, choices=RegradeState.choices, default=RegradeState.QUEUED
    )
    error = models.TextField(blank=True)
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="regrade")
    asked_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.get_purpose_display()} {self.pk}"


class RegradedScore(models.Model):
    """One rollout's other score."""

    regrade = models.ForeignKey(Regrade, on_delete=models.CASCADE, related_name="scores")
    rollout = models.ForeignKey("runs.Rollout", on_delete=models.CASCADE, related_name="regraded")
    state = models.CharField(max_length=16)
    score = models.FloatField(null=True)
    reason = models.TextField(blank=True)
    verdicts = models.JSONField(default=list)
    """[{"criterion", "name", "state", "value", "reason", "cites", "detail"}, ...]"""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["regrade", "rollout"], name="regraded_once"),
            models.CheckConstraint(
                condition=(
                    models.Q(state="scored", score__isnull=False)
                    | (~models.Q(state="scored") & models.Q(score__isnull=True))
                ),
                name="regraded_score_only_when_scored",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rollout_id} in {self.regrade_id}: {self.state}"


class RedTeamReport(models.Model):
    """What an attack on a rubric got paid."""

    rubric = models.ForeignKey("rubrics.Rubric", on_delete=models.CASCADE, related_name="attacks")
    spec = models.JSONField()
    version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.CASCADE, related_name="+"
    )
    state = models.CharField(
        max_length=10, choices=RegradeState.choices, default=RegradeState.QUEUED
    )
    error = models.TextField(blank=True)
    results = models.JSONField(default=list)
    """[{"attack", "rollout", "state", "score", "paid", "verdicts", "reason"}, ...]"""
    summary = models.JSONField(default=dict)
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    asked_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"red team {self.pk} of {self.rubric}"


class CriterionPolicy(models.Model):
    """What a project allows a criterion to be used for."""

    rubric = models.ForeignKey(
        "rubrics.Rubric", on_delete=models.CASCADE, related_name="criterion_policies"
    )
    criterion = models.CharField(max_length=64)
    is_barred = models.BooleanField(default=False)
    """Not a training reward, and not what an optimiser climbs on."""
    reason = models.TextField(blank=True)
    changed_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rubric", "criterion"], name="one_policy_each")
        ]

    def __str__(self) -> str:
        return f"{self.criterion}: {'barred' if self.is_barred else 'allowed'}"


class HackingAlarm(models.Model):
    """The training rubric and a held-out rubric drift apart, or the form of answers does."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="hacking_alarms"
    )
    climb = models.ForeignKey(
        "climbs.Climb", null=True, on_delete=models.CASCADE, related_name="alarms"
    )
    run = models.ForeignKey("runs.Run", null=True, on_delete=models.CASCADE, related_name="alarms")
    signal = models.CharField(max_length=32)
    """gap, length, format, criterion"""
    level = models.CharField(max_length=8)
    """warn or pause"""
    value = models.FloatField()
    detail = models.JSONField(default=dict)
    """Numbers, interval and the rollouts to read."""
    acknowledged_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    acknowledged_at = models.DateTimeField(null=True)
    """Null while nobody has said that they have seen it."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.level}: {self.signal} {self.value:g}"


class CalibrationBar(models.Model):
    """From where on a project believes a criterion. Without a row the defaults hold."""

    project = models.OneToOneField(
        "projects.Project", on_delete=models.CASCADE, related_name="calibration_bar"
    )
    kappa = models.FloatField(default=0.6)
    """Cohen's kappa between people and the criterion."""
    min_labels = models.PositiveSmallIntegerField(default=30)
    """Rollouts with a usable label; with fewer nothing is said for or against a criterion."""
    changed_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kappa__gte=0, kappa__lte=1), name="kappa_bar_in_range"
            )
        ]

    def __str__(self) -> str:
        return f"kappa {self.kappa:g} from {self.min_labels} labels"


class CriterionPolicyEntry(models.Model):
    """Who barred or allowed a criterion, when and why. Never changed."""

    rubric = models.ForeignKey(
        "rubrics.Rubric", on_delete=models.CASCADE, related_name="policy_entries"
    )
    criterion = models.CharField(max_length=64)
    is_barred = models.BooleanField()
    reason = models.TextField(blank=True)
    user = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.criterion} {'barred' if self.is_barred else 'allowed'}"


class Alignment(models.Model):
    """A better question for a judge: proposed from disagreements, tested on labels kept apart."""

    version = models.ForeignKey(
        "rubrics.RubricVersion", on_delete=models.CASCADE, related_name="alignments"
    )
    """Whose question is to be bettered."""
    criterion = models.CharField(max_length=64)
    endpoint = models.ForeignKey(
        "agents.ModelEndpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    """Who proposes; who judges is the criterion's own business."""
    max_cost_usd = models.FloatField(default=1.0)
    state = models.CharField(
        max_length=10, choices=RegradeState.choices, default=RegradeState.QUEUED
    )
    error = models.TextField(blank=True)
    proposals = models.JSONField(default=list)
    """[{"question", "rejected": why or "", "raw": reply}, ...] in the order in which they came."""
    result = models.JSONField(default=dict)
    """Of the proposal that was tested: counts, kappa and intervals of both questions, p-value."""
    n_total = models.PositiveIntegerField(default=0)
    n_done = models.PositiveIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    """Of the proposer and of the judge's new verdicts."""
    draft_revision = models.PositiveIntegerField(null=True)
    """Of the rubric's draft that took the question over; null: nobody has."""
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    asked_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"alignment {self.pk} of {self.criterion}"


class RubricSuggestion(models.Model):
    """Criteria that a model proposes for a rubric; none is in the draft before it is taken."""

    rubric = models.ForeignKey(
        "rubrics.Rubric", on_delete=models.CASCADE, related_name="suggestions"
    )
    endpoint = models.ForeignKey(
        "agents.ModelEndpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    environment_version = models.ForeignKey(
        "environments.EnvironmentVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    n_traces = models.PositiveSmallIntegerField(default=0)
    """At most so many are shown to the model."""
    state = models.CharField(
        max_length=10, choices=RegradeState.choices, default=RegradeState.QUEUED
    )
    progress = models.CharField(max_length=120, blank=True)
    """What is being done."""
    error = models.TextField(blank=True)
    criteria = models.JSONField(default=list)
    """[{"criterion": a criterion as JSON, "why", "settled": "", "taken" or "dismissed"}, ...]"""
    left_out = models.JSONField(default=list)
    """[{"name", "reason"}, ...]: proposed, and not usable."""
    raw = models.TextField(blank=True)
    """The model's last reply."""
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    asked_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"suggestion {self.pk} for {self.rubric}"
