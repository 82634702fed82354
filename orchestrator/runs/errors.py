"""Errors of runs."""

from __future__ import annotations


class RunError(RuntimeError):
    """A run cannot start or go on; the message says why and what to do."""


class RunInterrupted(RuntimeError):
    """Control flow: the worker is stopping; open rollouts are attempted again by the next attempt."""


class RunCancelled(RuntimeError):
    """Control flow: somebody cancelled the run."""
