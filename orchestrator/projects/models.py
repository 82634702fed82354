"""Users, projects, memberships and API tokens.

A token's secret is shown once and stored only as SHA-256: it has 256 random bits, so a slow
password hash would add nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import AbstractUser
from django.db import models

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
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"
