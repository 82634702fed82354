"""Environments: where agents act, in versions, with the tasks of each version.

An environment version is frozen: its content hash covers kind, source and every task, so that a run
which names a version can be repeated. Tasks belong to a split; `test` is sealed and read once per
claim. A reference transcript exists on `train` tasks only, which a database constraint keeps:
nothing that proposes a better harness may learn from the tasks that certify it.
"""

from __future__ import annotations

from django.db import models


class EnvironmentKind(models.TextChoices):
    QA = "qa", "Questions and answers"
    """One turn, compared with reference answers."""
    TERMINAL = "terminal", "Terminal"
    """Folders of files, a real shell in the sandbox."""
    SQL = "sql", "SQL database"
    """A schema and rows for each task, graded by the state that the statements leave."""
    TOOLS = "tools", "Tools"
    """Tools of an MCP server, or small Python functions."""
    PACKAGE = "package", "OpenEnv package or folder"
    """Installed into an environment of its own and run in the sandbox."""
    DOCKER = "docker", "Container image"
    """Run by Docker with limits."""
    ACA = "aca", "Azure Container Apps sandbox"
    """Run by Azure, egress denied unless allowed."""
    URL = "url", "OpenEnv server by URL"
    """A server that somebody else runs."""


class Environment(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="environments"
    )
    slug = models.SlugField(max_length=64)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=EnvironmentKind.choices)
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "slug"], name="environment_slug_in_project")
        ]

    def __str__(self) -> str:
        return self.name


class EnvironmentVersion(models.Model):
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    source = models.JSONField(default=dict)
    """What the kind needs to run or reach its server: see the kind's module."""
    settings = models.JSONField(default=dict)
    """Limits of an episode: see `orchestrator.environments.session`."""
    resources = models.JSONField(default=dict)
    """Of a server: slots, number of servers, memory, network: see `environments.resources`."""
    description = models.TextField(blank=True)
    """What the agent is told about the environment, before the task."""
    note = models.CharField(max_length=200, blank=True)
    """What changed, by whoever published it; not part of the content."""
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["environment", "number"], name="environment_version_number"
            )
        ]

    def __str__(self) -> str:
        return f"{self.environment} v{self.number}"


class Split(models.TextChoices):
    TRAIN = "train", "train"
    SELECT = "select", "select"
    TEST = "test", "test (sealed)"


class Task(models.Model):
    version = models.ForeignKey(EnvironmentVersion, on_delete=models.CASCADE, related_name="tasks")
    key = models.CharField(max_length=64)
    split = models.CharField(max_length=8, choices=Split.choices)
    family = models.CharField(max_length=64, blank=True)
    """The group that pages and samplers put it in."""
    difficulty = models.FloatField(null=True, blank=True)
    """By its author's scale; higher is harder."""
    prompt = models.TextField()
    reset = models.JSONField(default=dict)
    """Parameters of the environment's reset."""
    spec = models.JSONField(default=dict)
    """What the environment server needs to serve the task (files, answer); never shown to an agent.
    """
    limits = models.JSONField(default=dict)
    """Limits of an episode where they differ from the version's."""
    seeds = models.JSONField(default=list)
    """Seeds of the environment's reset for replicate 0, 1, …; those beyond them are derived."""
    reference = models.JSONField(null=True, blank=True)
    """The author's transcript as chat messages."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "key"], name="task_key_in_version"),
            models.CheckConstraint(
                condition=models.Q(split="train") | models.Q(reference__isnull=True),
                name="reference_on_train_only",
            ),
        ]
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key
