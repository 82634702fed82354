"""Gates: the decision on one change, by paired statistics.

A gate is frozen when it starts: both sides, tasks, policy and the looks with their levels. What it
does next is a function of the rollouts that exist, so a kill loses nothing: each look's runs carry
a key, and the decision of a look is the same whoever makes it.
"""

from __future__ import annotations

from django.db import models

from orchestrator.gates.deciding import Reason, Verdict


class GateState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    DECIDED = "decided", "decided"
    CANCELLED = "cancelled", "cancelled"


ENDED_GATE_STATES = (GateState.DECIDED, GateState.CANCELLED)


class Gate(models.Model):
    project = models.ForeignKey("projects.Project", on_delete=models.CASCADE, related_name="gates")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="gate")
    name = models.CharField(max_length=200)
    state = models.CharField(max_length=12, choices=GateState.choices, default=GateState.QUEUED)
    environment_version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.PROTECT, related_name="gates"
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", on_delete=models.PROTECT, related_name="gates"
    )
    split = models.CharField(max_length=8)
    tasks = models.JSONField(default=list)
    """Keys, in order."""
    candidate = models.ForeignKey(
        "optimizer.HarnessVersion", on_delete=models.PROTECT, related_name="+"
    )
    candidate_model = models.ForeignKey(
        "agents.ModelEndpoint", on_delete=models.PROTECT, related_name="+"
    )
    baseline = models.ForeignKey(
        "optimizer.HarnessVersion", on_delete=models.PROTECT, related_name="+"
    )
    baseline_model = models.ForeignKey(
        "agents.ModelEndpoint", on_delete=models.PROTECT, related_name="+"
    )
    policy = models.JSONField(default=dict)
    """`orchestrator.gates.policy.Policy` as JSON."""
    source = models.JSONField(default=dict)
    """Where the change comes from, as its sender told: commit, branch, pull_request, url."""
    concurrency = models.PositiveSmallIntegerField(default=16)
    seed = models.BigIntegerField(default=0)
    verdict = models.CharField(
        max_length=16, blank=True, choices=[(v.value, v.value) for v in Verdict]
    )
    reason = models.CharField(
        max_length=12, blank=True, choices=[(reason.value, reason.value) for reason in Reason]
    )
    sentence = models.TextField(blank=True)
    """Why, in words for people."""
    decisions = models.JSONField(default=list)
    """Of each look so far: `orchestrator.gates.deciding.Decision` as JSON."""
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["project", "-id"])]
        constraints = [
            models.CheckConstraint(
                condition=(
                    models.Q(state="decided") & ~models.Q(verdict="")
                    | ~models.Q(state="decided") & models.Q(verdict="")
                ),
                name="a_decided_gate_has_a_verdict",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_GATE_STATES


class Side(models.TextChoices):
    BOTH = "both", "both"
    BASELINE = "baseline", "baseline"
    CANDIDATE = "candidate", "candidate"


class GateRun(models.Model):
    """The rollouts of one look: one run for both sides, or one each where their models differ."""

    gate = models.ForeignKey(Gate, on_delete=models.CASCADE, related_name="gate_runs")
    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="gate_run")
    look = models.PositiveSmallIntegerField()
    """Counted from 1."""
    side = models.CharField(max_length=10, choices=Side.choices)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["gate", "look", "side"], name="one_run_of_a_look")
        ]

    def __str__(self) -> str:
        return f"look {self.look} of gate {self.gate_id}"
