"""Environments while they are written: a draft changes, a published version never does.

An environment has at most one draft. Every change raises `revision`; a writer names the revision
that it saw, so that of two people the second is told. Publishing makes a version of it.
"""

from __future__ import annotations

from django.db import models

from orchestrator.environments.models.environment import Split


class EnvironmentDraft(models.Model):
    environment = models.OneToOneField(
        "environments.Environment", on_delete=models.CASCADE, related_name="draft"
    )
    base = models.ForeignKey(
        "environments.EnvironmentVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    """The version that it started from."""
    source = models.JSONField(default=dict)
    settings = models.JSONField(default=dict)
    resources = models.JSONField(default=dict)
    description = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=0)
    undo = models.JSONField(default=dict)
    """How the last change is taken back: see `environments.authoring.undo`. Empty: it cannot be."""
    updated_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"draft of {self.environment}"


class DraftTask(models.Model):
    """The columns of a task: see `Task`."""

    draft = models.ForeignKey(EnvironmentDraft, on_delete=models.CASCADE, related_name="tasks")
    key = models.CharField(max_length=64)
    split = models.CharField(max_length=8, choices=Split.choices)
    family = models.CharField(max_length=64, blank=True)
    difficulty = models.FloatField(null=True, blank=True)
    prompt = models.TextField()
    reset = models.JSONField(default=dict)
    spec = models.JSONField(default=dict)
    limits = models.JSONField(default=dict)
    seeds = models.JSONField(default=list)
    reference = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["draft", "key"], name="task_key_in_draft"),
            models.CheckConstraint(
                condition=models.Q(split="train") | models.Q(reference__isnull=True),
                name="draft_reference_on_train_only",
            ),
        ]
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key


class UploadState(models.TextChoices):
    PREVIEW = "preview", "preview"
    APPLIED = "applied", "applied"
    DISCARDED = "discarded", "discarded"


class TaskUpload(models.Model):
    """A file of tasks, read and checked, that waits for a person's yes. Applied as a whole."""

    draft = models.ForeignKey(EnvironmentDraft, on_delete=models.CASCADE, related_name="uploads")
    filename = models.CharField(max_length=200)
    state = models.CharField(
        max_length=10, choices=UploadState.choices, default=UploadState.PREVIEW
    )
    rows = models.JSONField(default=list)
    """Tasks that are right, with the line each came from."""
    errors = models.JSONField(default=list)
    """[{"line": n, "field": name, "reason": text, "raw": shortened text}, ...]"""
    summary = models.JSONField(default=dict)
    """Counts by split, rows left out, columns not used: see `environments.authoring.uploads`."""
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.filename}: {self.state}"
