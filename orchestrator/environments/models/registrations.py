"""Sources on their way to becoming environments: what was asked for, how far it is, why it failed.

A job prepares the source (installs, pulls), starts a server of it and resets an episode. Only then
are there an environment and its first version. A failed registration keeps its reason and its log.
"""

from __future__ import annotations

from django.db import models

from orchestrator.environments.models.environment import EnvironmentKind


class RegistrationState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    """`step` says what is done at the moment."""
    DONE = "done", "done"
    """`version` is its environment's first version."""
    FAILED = "failed", "failed"
    """`message` says why and what to do."""
    CANCELLED = "cancelled", "cancelled"


class SourceRegistration(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="registrations"
    )
    stream = models.OneToOneField(
        "events.Stream", on_delete=models.PROTECT, related_name="registration"
    )
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=EnvironmentKind.choices)
    source = models.JSONField(default=dict)
    """As it was given; the version's source says what became of it."""
    resources = models.JSONField(default=dict)
    description = models.TextField(blank=True)
    state = models.CharField(
        max_length=10, choices=RegistrationState.choices, default=RegistrationState.QUEUED
    )
    step = models.CharField(max_length=200, blank=True)
    message = models.TextField(blank=True)
    """Why it failed; ends with foreign text."""
    version = models.ForeignKey(
        "environments.EnvironmentVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"registration of {self.name}: {self.state}"

    @property
    def has_ended(self) -> bool:
        return self.state not in (RegistrationState.QUEUED, RegistrationState.RUNNING)
