"""Tells whoever asked that a proposal has ended. Receivers run in the ending transaction and must
be short.
"""

from __future__ import annotations

from django.dispatch import Signal

proposal_answered = Signal()
"""Sent by `Proposal` with `proposal`, which is answered or failed; once for each."""
