"""Rubrics in versions. A version is frozen and content-addressed: a score names the version that
gave it.
"""

from __future__ import annotations

from django.db import models


class Rubric(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="rubrics"
    )
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="rubric_name_in_project")
        ]

    def __str__(self) -> str:
        return self.name


class RubricVersion(models.Model):
    rubric = models.ForeignKey(Rubric, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    spec = models.JSONField()
    """`rubrics.types.RubricSpec` as JSON."""
    sha256 = models.CharField(max_length=64)
    note = models.TextField(blank=True)
    """What its publisher says of it; required where golden cases did not hold."""
    failed_golden = models.JSONField(default=list)
    """Names of the golden cases that did not hold when it was published all the same."""
    published_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rubric", "number"], name="rubric_version_number")
        ]

    def __str__(self) -> str:
        return f"{self.rubric} v{self.number}"
