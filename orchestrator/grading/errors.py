"""The exceptions of rubrics at work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


class GradingError(Exception):
    """Base of everything that this app raises."""


class DraftRefused(GradingError, ValueError):
    """Nothing was stored; the text says what cannot be and what is accepted."""


class DraftGone(GradingError, LookupError):
    """Published or discarded meanwhile."""


class Stale(GradingError, RuntimeError):
    """Somebody else has stored the draft meanwhile; nothing of this save was stored."""

    def __init__(
        self, spec: Mapping[str, Any], revision: int, by: str = "", at: datetime | None = None
    ) -> None:
        super().__init__(spec, revision, by, at)
        self.spec = spec
        """What is stored."""
        self.revision = revision
        self.by = by
        """Name of who stored it."""
        self.at = at

    def __str__(self) -> str:
        return f"{self.by or 'Somebody else'} has stored revision {self.revision} meanwhile."


class PolicyRefused(GradingError, ValueError):
    """The decision on a criterion cannot be kept as it was sent; the text says what is accepted."""


class RegradeRefused(GradingError, ValueError):
    """Nothing was started; the text says why and what can be done."""


class GoldenRefused(GradingError, ValueError):
    """Nothing was stored; the text names the field and what it accepts."""


class GoldenFailures(GradingError, RuntimeError):
    """Golden cases do not hold; publishing takes an explicit yes with a note."""


class AttackRefused(GradingError, ValueError):
    """Nothing was started or made; the text says why and what is accepted."""
