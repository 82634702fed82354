"""Tells whoever asked for a run that it ended. Receivers run in the ending transaction and must be
short.
"""

from __future__ import annotations

from django.dispatch import Signal

run_ended = Signal()
"""Sent with `run`."""

rollout_ended = Signal()
"""Sent with `run`, `rollout`, `done` and `planned` when a rollout of the run has ended."""
