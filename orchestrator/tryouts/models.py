"""Episodes that a person plays by hand, to see what an environment does before agents do.

A job holds the live session; what the person asks for are rows, in order, and what happened are
events of the tryout's stream. So the page may be reloaded, several web processes may serve it, and
a lost worker is shown as what it is. Its stream is for editors only: it holds what the environment
says to people, which may solve the task.
"""

from __future__ import annotations

from django.db import models


class TryoutState(models.TextChoices):
    STARTING = "starting", "starting"
    """Waits for a worker, a server, or a replay."""
    OPEN = "open", "open"
    ENDED = "ended", "ended"
    """Closed by the person, for want of use, or at its longest."""
    LOST = "lost", "lost"
    """The session or its worker went away; `message` says how. It can be started again."""


LIVE_STATES = (TryoutState.STARTING, TryoutState.OPEN)
"""They hold a slot of a worker."""


class Tryout(models.Model):
    version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.CASCADE, related_name="tryouts"
    )
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="tryouts")
    stream = models.OneToOneField("events.Stream", on_delete=models.PROTECT, related_name="tryout")
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    """The newest: each start again is a job of its own."""
    task = models.ForeignKey(
        "environments.Task", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    """Null: an episode of no stored task, started with the person's own parameters."""
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    action_schema = models.JSONField(null=True)
    """What the server accepts as an action; null until it is known, or where it publishes none."""
    tools = models.JSONField(default=list)
    """[{"name", "description", "input_schema"}, ...] of a server whose actions are calls of tools.
    """
    isolation = models.JSONField(default=dict)
    """What keeps the session apart from the machine: see `environments.isolation`."""
    state = models.CharField(
        max_length=10, choices=TryoutState.choices, default=TryoutState.STARTING
    )
    message = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    opened_at = models.DateTimeField(null=True)
    """Since when the newest job holds a session; the longest time counts from here."""
    used_at = models.DateTimeField(null=True)
    """The newest command; the idle time counts from here."""
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"tryout {self.pk} of {self.version}"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES


class CommandKind(models.TextChoices):
    RESET = "reset", "reset"
    """`params`: those of the environment's reset."""
    STEP = "step", "step"
    """`action`: the action as JSON."""
    UNDO = "undo", "undo"
    """`steps`: how many of the last ones; the others are played again in a fresh session."""
    REPLAY = "replay", "replay"
    """All steps again in a fresh session, after a loss."""
    STATE = "state", "state"
    """Fetch the environment's state, for people only."""
    GRADE = "grade", "grade"
    """Grade the steps so far by the tryout's rubric."""


class CommandState(models.TextChoices):
    PENDING = "pending", "pending"
    DONE = "done", "done"
    REFUSED = "refused", "refused"
    """Not carried out; `reason` says why."""


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
