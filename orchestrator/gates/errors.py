"""Why a gate is refused; every message names the field and what it accepts."""

from __future__ import annotations


class GateRefused(ValueError):
    """Nothing was started. `field` is the request's, `accepts` what it takes."""

    def __init__(self, field: str, accepts: str) -> None:
        super().__init__(f"{field}: {accepts}.")
        self.field, self.accepts = field, accepts
        self.errors = {field: f"{accepts}."}


class GateEnded(ValueError):
    """It cannot be cancelled any more."""
