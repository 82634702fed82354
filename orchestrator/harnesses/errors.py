"""Why a harness cannot be taken in or changed; every message names the file and the fix."""

from __future__ import annotations


class UploadRefused(ValueError):
    """What was sent is no harness."""


class ChangeRefused(ValueError):
    """The change gives no harness, or none that is new."""
