from __future__ import annotations

from django.db import models


class SharedFolder(models.Model):
    """A folder (or file) of some host's data folder that others can fetch: see `sharing`."""

    key = models.CharField(max_length=200, unique=True)
    """Its path below the data folder, the same on every host: `training/12`."""
    tree = models.CharField(max_length=64)
    """The blob that lists its files; of a single file, the file."""
    is_file = models.BooleanField(default=False)
    version = models.PositiveIntegerField(default=0)
    """Of what changes by steps: the step."""
    size = models.PositiveBigIntegerField(default=0)
    """Bytes of its files."""
    host = models.CharField(max_length=200)
    """Who put it there."""
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.key} (version {self.version}, by {self.host})"
