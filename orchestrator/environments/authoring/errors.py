"""Why a change of a draft is refused. Expected outcomes that a form shows beside the field."""

from __future__ import annotations

from collections.abc import Mapping


class DraftRefusedError(ValueError):
    """A sentence for people that says what to do."""


class FieldsRefusedError(DraftRefusedError):
    """Fields that do not fit, each with its reason."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name} {reason}" for name, reason in errors.items()))
        self.errors = dict(errors)

    def __reduce__(self) -> tuple[type[FieldsRefusedError], tuple[dict[str, str]]]:
        return type(self), (self.errors,)


class DraftConflictError(DraftRefusedError):
    """Somebody else changed the same thing after it was read."""
