"""Names of the proposers that answer from outside."""

from __future__ import annotations

from optimizer.reflection import Mode

HANDED_IN = "handed_in"
"""A person or an external agent answers, some time."""
PROPOSERS = (*(str(mode) for mode in Mode), HANDED_IN)
