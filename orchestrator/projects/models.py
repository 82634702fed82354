"""Users, projects, memberships, invitations, API tokens, and the log of what people changed.

A token's secret is shown once and stored only as SHA-256: it has 256 random bits, so a slow
password hash would add nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager


class User(AbstractUser):
    """A person. A superuser is an operator of the installation and may see and edit everything."""

    if TYPE_CHECKING:
        memberships: RelatedManager[Membership]


class Project(models.Model):
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(User, through="Membership", related_name="projects")

    if TYPE_CHECKING:
        memberships: RelatedManager[Membership]

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    """Reads everything in the project."""
    EDITOR = "editor", "Editor"
    """Also changes things and starts work."""
    ADMIN = "admin", "Admin"
    """Also manages members, tokens and limits."""


class Membership(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="membership_once"),
            models.CheckConstraint(
                condition=models.Q(role__in=Role.values), name="membership_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}: {self.role}"


class ApiToken(models.Model):
    """Lets a program act with `role` in one project, in the name of the user who made it.

    Its right is never more than its user's right at the time of use.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="tokens")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    prefix = models.CharField(max_length=12)
    """The first characters of the secret, to recognise a token in a list."""
    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of the whole secret, hexadecimal."""
    scopes = models.JSONField(default=list, blank=True)
    """Names of `projects.scopes`; empty: all that its role allows."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    """From then on it is refused; null: it lasts until it is revoked."""
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()


class Invitation(models.Model):
    """A link that lets one person join a project, until it is used, ends or is taken back."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    note = models.CharField(max_length=200, blank=True)
    """For whom, in the words of who invites."""
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of the secret in the link, hexadecimal."""
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.role})"


class ProjectLimits(models.Model):
    """Caps of a project's day; None is no cap. Read by `orchestrator.runs.limits`."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="limits")
    rollouts_per_day = models.PositiveIntegerField(null=True, blank=True)
    usd_per_day = models.FloatField(null=True, blank=True)
    """On rollouts, by the prices of their endpoints."""
    storage_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    """Of all that the project keeps, as `orchestrator.projects.storage` reads it."""

    class Meta:
        verbose_name = "limits"
        verbose_name_plural = "limits"

    def __str__(self) -> str:
        return f"limits of {self.project_id}"


class ProjectUse(models.Model):
    """Bytes of one kind that a project has, as last measured by `orchestrator.keeping.use`."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="use")
    part = models.CharField(max_length=12)
    """A name of `projects.storage.PARTS`."""
    bytes = models.PositiveBigIntegerField(default=0)
    up_to = models.BigIntegerField(default=0)
    """Key of the newest row that is counted: rows are only added between two full measures."""
    measured_at = models.DateTimeField()
    full_at = models.DateTimeField()
    """Of the last measure from nothing."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "part"], name="one_use_of_a_part")
        ]

    def __str__(self) -> str:
        return f"{self.part}: {self.bytes} bytes"


class AuditEntry(models.Model):
    """One request of a person or their token that changed something, or was refused to.

    Names are kept beside the keys, so that the entry still says who after the user is gone.
    """

    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.SET_NULL, related_name="audit"
    )
    user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    username = models.CharField(max_length=150)
    token_prefix = models.CharField(max_length=12, blank=True)
    """Of the API token that was used; empty for a person at a page."""
    action = models.CharField(max_length=100)
    """Name of the address, such as `web:run_cancel`."""
    method = models.CharField(max_length=10)
    path = models.CharField(max_length=400)
    status = models.PositiveSmallIntegerField()
    """Of the answer; 403 is an attempt that the role did not allow."""
    changes = models.JSONField(default=list)
    """[{kind, id, label, what: created | changed | deleted, fields: {name: [before, after]}}]"""
    request_id = models.CharField(max_length=32, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["project", "-id"], name="audit_of_project")]

    def __str__(self) -> str:
        return f"{self.username}: {self.method} {self.path}"
