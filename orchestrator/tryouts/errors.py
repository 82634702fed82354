"""What a tryout refuses. The message is for the page: it names the limit and what to do."""

from __future__ import annotations


class TryoutError(Exception):
    """Base of this app's errors."""


class TryoutRefused(TryoutError, ValueError):
    """It cannot be started, or not be asked for this now."""


class ReferenceRefused(TryoutError, ValueError):
    """The play cannot be saved as a reference transcript."""
