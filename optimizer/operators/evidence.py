"""What operators look at. Evidence comes from the train split alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.harness import Message


@dataclass(frozen=True)
class Trace:
    """An attempt at a task as the model would see it: the author's, or the agent's own."""

    task: str
    """Key of the task."""
    messages: Sequence[Message]
    """From the task's text (`user`) to the last action (`assistant`)."""
    stratum: str = ""
    """For instance the task's family."""
    score: float | None = None
    """None for a reference transcript and for attempts without a score."""

    @property
    def size_chars(self) -> int:
        return sum(len(message["content"]) for message in self.messages)
