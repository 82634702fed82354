"""What differs between kinds of environments, behind one small interface.

A kind says how its server is run, how an agent's reply becomes an action, and how an observation
reads, piece by piece with what each piece is. To add a kind: write a class with these three
methods and put it into `KINDS`.
"""

from __future__ import annotations

from orchestrator.environments.kinds.aca import AcaKind
from orchestrator.environments.kinds.base import Kind, Segments, Spec
from orchestrator.environments.kinds.docker import DockerKind
from orchestrator.environments.kinds.package import PackageKind
from orchestrator.environments.kinds.qa import QaKind
from orchestrator.environments.kinds.sql import SqlKind
from orchestrator.environments.kinds.terminal import TerminalKind
from orchestrator.environments.kinds.tools import ToolsKind
from orchestrator.environments.kinds.url import UrlKind

__all__ = ["KINDS", "Kind", "Segments", "Spec"]

KINDS: dict[str, Kind] = {
    "aca": AcaKind(),
    "docker": DockerKind(),
    "package": PackageKind(),
    "qa": QaKind(),
    "sql": SqlKind(),
    "terminal": TerminalKind(),
    "tools": ToolsKind(),
    "url": UrlKind(),
}
