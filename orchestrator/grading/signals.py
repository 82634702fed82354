"""Tells whoever asked for a grading that it ended. Receivers run in the ending transaction and must
be short.
"""

from __future__ import annotations

from django.dispatch import Signal

regrade_ended = Signal()
"""Sent with `regrade`."""
