"""What a check says when something does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    invariant: str
    """One of `verification.INVARIANTS`."""
    subject: str
    """What is concerned, for instance `rollout 7`."""
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.subject}: {self.text}"


Findings = Iterator[Finding]
