"""Tells whoever asked for a run that it ended. Receivers run in the ending transaction and must be
short.
"""

from __future__ import annotations

from django.dispatch import Signal

run_ended = Signal()
"""Sent with `run`."""

rollout_ended = Signal()
"""Sent with `run` and `rollout` when a rollout of the run has ended."""

run_progressed = Signal()
"""Sent with `run`, `done` and `planned`, once for all rollouts that ended in one transaction."""
