"""What can go wrong between an agent and its model."""

from __future__ import annotations


class ModelError(ConnectionError):
    """A model endpoint gave no usable answer.

    `cause` is a fixed code: model_unreachable, model_timeout, model_overloaded, model_refused,
    context_overflow, model_reply_invalid. The message is for people and names endpoint and limit.
    """

    def __init__(self, message: str, cause: str = "model_unreachable") -> None:
        super().__init__(message, cause)
        self.cause = cause
        self.message = message

    def __str__(self) -> str:
        return self.message


class BridgeDown(ModelError, ValueError):
    """The bridge to a Tinker server does not start: no run can begin with that model."""
