"""Episodes that a person plays by hand, to see what an environment does before agents do.

A job holds the live session; what the person asks for are rows, in order, and what happened are
events of the tryout's stream. So the page may be reloaded, several web processes may serve it, and
a lost worker is shown as what it is.
"""

from __future__ import annotations

from django.db import models


class TryoutState(models.TextChoices):
    STARTING = "starting", "starting"
    OPEN = "open", "open"
    ENDED = "ended", "ended"
    """Closed by the person, or for want of use."""
    LOST = "lost", "lost"
    """The session or its worker went away; `message` says how."""


class Tryout(models.Model):
    version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.CASCADE, related_name="tryouts"
    )
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="tryouts")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="tryout")
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    task = models.ForeignKey(
        "environments.Task", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(
        max_length=10, choices=TryoutState.choices, default=TryoutState.STARTING
    )
    message = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"tryout {self.pk} of {self.version}"


class CommandKind(models.TextChoices):
    RESET = "reset", "reset"
    STEP = "step", "step"
    UNDO = "undo", "undo"
    CLOSE = "close", "close"


class CommandState(models.TextChoices):
    PENDING = "pending", "pending"
    DONE = "done", "done"
    REFUSED = "refused", "refused"


class TryoutCommand(models.Model):
    tryout = models.ForeignKey(Tryout, on_delete=models.CASCADE, related_name="commands")
    kind = models.CharField(max_length=8, choices=CommandKind.choices)
    payload = models.JSONField(default=dict)
    state = models.CharField(
        max_length=8, choices=CommandState.choices, default=CommandState.PENDING
    )
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} of {self.tryout}"
