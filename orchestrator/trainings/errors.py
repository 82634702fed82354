"""What a training refuses; shown to whoever asked."""

from __future__ import annotations


class TrainingRefused(ValueError):
    """It cannot be done; the message says why and what can."""


class TrainingError(RuntimeError):
    """The training job cannot go on; the message is shown on its page and on the ladder."""
