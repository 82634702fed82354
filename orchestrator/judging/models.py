"""What judges were asked and what they really said.

A call is named by its content: model, prompt, sampling parameters and the number of the repeat. So
the same question costs once, and a verdict can always show the raw replies behind it.
"""

from __future__ import annotations

from django.db import models


class JudgeLimits(models.Model):
    """What the judges of a project may take in a day (UTC); null: as much as they need."""

    project = models.OneToOneField(
        "projects.Project", on_delete=models.CASCADE, related_name="judge_limits"
    )
    usd_per_day = models.FloatField(null=True, blank=True)
    tokens_per_day = models.PositiveBigIntegerField(null=True, blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "judge limits"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(usd_per_day__isnull=True) | models.Q(usd_per_day__gte=0),
                name="judge_usd_not_negative",
            )
        ]

    def __str__(self) -> str:
        return f"limits of judges in {self.project}"


class JudgeCall(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="judge_calls"
    )
    key = models.CharField(max_length=64)
    """SHA-256 of everything that decides the reply."""
    endpoint = models.ForeignKey(
        "agents.ModelEndpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    criterion = models.CharField(max_length=64)
    request = models.JSONField()
    """Messages, schema and sampling parameters as sent."""
    replies = models.JSONField(default=list)
    """Each attempt: {"text", "problem", "tokens_in", "tokens_out", "latency_s"}; raw, foreign text.
    """
    state = models.CharField(max_length=16)
    value = models.FloatField(null=True)
    reason = models.TextField(blank=True)
    reason_kind = models.CharField(max_length=32, blank=True)
    """Why there is no value: see `rubrics.judge`."""
    tokens_in = models.PositiveIntegerField(default=0)
    tokens_out = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "key"], name="judge_call_once"),
            models.CheckConstraint(
                condition=(
                    models.Q(state="scored", value__isnull=False)
                    | (~models.Q(state="scored") & models.Q(value__isnull=True))
                ),
                name="judge_value_only_when_scored",
            ),
        ]

    def __str__(self) -> str:
        return f"judge call {self.key[:8]}: {self.state}"
