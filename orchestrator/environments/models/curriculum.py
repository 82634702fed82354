"""Which task comes next, and what is known of each: the stored state of a task sampler."""

from __future__ import annotations

from django.db import models


class SamplerKind(models.TextChoices):
    SEQUENTIAL = "sequential", "sequential"
    UNIFORM = "uniform", "uniform"
    SIGNAL = "signal", "signal"


class Curriculum(models.Model):
    """One sampler's state. `key` names it for whoever draws from it."""

    version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.CASCADE, related_name="curricula"
    )
    key = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=12, choices=SamplerKind.choices)
    settings = models.JSONField(default=dict)
    """Group size, decay, floor: see `environments.curriculum`."""
    seed = models.BigIntegerField(default=0)
    n_draws = models.PositiveIntegerField(default=0)
    """Draws made so far: with the seed they give the next one."""
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.key} ({self.kind})"


class TaskEstimate(models.Model):
    """Decayed counts of one task."""

    curriculum = models.ForeignKey(Curriculum, on_delete=models.CASCADE, related_name="estimates")
    task = models.ForeignKey(
        "environments.Task", on_delete=models.CASCADE, related_name="estimates"
    )
    successes = models.FloatField(default=0.0)
    failures = models.FloatField(default=0.0)
    cost = models.FloatField(default=0.0)
    """Decayed mean cost of one rollout."""
    n_rollouts = models.PositiveIntegerField(default=0)
    n_draws = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["curriculum", "task"], name="one_estimate_each")
        ]

    def __str__(self) -> str:
        return f"{self.task}: {self.successes:g} of {self.successes + self.failures:g}"


class CurriculumDraw(models.Model):
    """What was drawn for one step: asked again, it is the same."""

    curriculum = models.ForeignKey(Curriculum, on_delete=models.CASCADE, related_name="draws")
    step = models.PositiveIntegerField()
    """As whoever draws counts them, for instance a training step."""
    tasks = models.JSONField()
    """Keys in the order drawn."""
    n_before = models.PositiveIntegerField()
    """Tasks drawn before: with the seed they gave these."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["curriculum", "step"], name="one_draw_each_step")
        ]

    def __str__(self) -> str:
        return f"step {self.step} of {self.curriculum}"


class CurriculumRollout(models.Model):
    """A rollout that an estimate has counted. Its number alone: runs stand above environments."""

    curriculum = models.ForeignKey(Curriculum, on_delete=models.CASCADE, related_name="rollouts")
    rollout_id = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["curriculum", "rollout_id"], name="counted_once")
        ]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id} in {self.curriculum}"
