"""What could not be carried over, or means something else here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    at: str
    """Where it stood, for instance `quality.criterion[2].negate`."""
    why: str

    def __str__(self) -> str:
        return f"{self.at}: {self.why}"
