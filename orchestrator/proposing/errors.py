"""What may be refused here. A proposer that fails is a row, not an exception."""

from __future__ import annotations


class AnswerRefused(ValueError):
    """An answer that was handed in cannot be taken; says why, and the proposal waits on."""

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message, findings)
        self.message = message
        self.findings = findings
        """One for each edit that may not be tried."""

    def __str__(self) -> str:
        return " ".join([self.message, *self.findings])


class NotWaiting(AnswerRefused):
    """There is nothing to answer (any more, or yet): the answer itself may be fine."""
