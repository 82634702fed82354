"""What must be done once before a source can be served, by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import SourceError

Report = Callable[[str], None]
"""Tells people what is done at the moment."""
Check = Callable[[], None]
"""Raises if the work should stop; called about twice a second while waiting."""


@dataclass(frozen=True)
class Prepared:
    source: dict[str, Any]
    """Frozen: names content by digest, not by place."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the episode, as the source declares them."""
    summary: str = ""
    """What the source says of itself."""


def prepare(
    *, kind: str, source: Mapping[str, Any], data: Path, report: Report, check: Check
) -> Prepared:
    """`SourceError` with what failed and what to do. Quick if it was done before."""
    match kind:
        case "package":
            from orchestrator.environments.packages.install import prepare_package

            return prepare_package(source, data=data, report=report, check=check)
        case "docker":
            from orchestrator.environments.packages.image import prepare_image

            return prepare_image(source, report=report, check=check)
        case "aca":
            return Prepared(dict(source))
    raise SourceError(f"kind: nothing to prepare for {kind}")
