from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NewEvent:
    kind: str
    payload: Mapping[str, Any]
    """Plain JSON; NaN and infinities are refused, they are no score and no measure."""
    search: Any = None
    """What full-text search reads instead of the payload."""
