"""What a grader says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EVIDENCE_CHARS = 600
"""Longer evidence is shortened: it is foreign text on a page of many checks."""


class Status(StrEnum):
    """The values of `models.CheckStatus`."""

    PASS = "pass"
    WARN = "warn"
    """Nothing that makes scores wrong, but something to know."""
    FAIL = "fail"
    SKIP = "skip"
    """The question does not arise for this environment."""
    ERROR = "error"
    """The grader could not tell; says nothing about the environment."""


@dataclass(frozen=True)
class Finding:
    """One check's result."""

    status: Status
    evidence: str
    """A sentence or two for people; may quote foreign text, which pages escape."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON. Names carry their unit."""
    remediation: str = ""
    """Only where it is more exact than the catalogue's."""


def passed(evidence: str, **measured: Any) -> Finding:
    return Finding(Status.PASS, evidence, measured)


def warned(evidence: str, **measured: Any) -> Finding:
    return Finding(Status.WARN, evidence, measured)


def failed(evidence: str, **measured: Any) -> Finding:
    return Finding(Status.FAIL, evidence, measured)


def skipped(evidence: str, **measured: Any) -> Finding:
    return Finding(Status.SKIP, evidence, measured)


def untold(evidence: str, **measured: Any) -> Finding:
    """The grader could not tell."""
    return Finding(Status.ERROR, evidence, measured)


def quoted(text: str, limit: int = 160) -> str:
    """Foreign text as part of evidence: one line, without control characters, shortened."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: limit + 1]).split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def counted(n: int, noun: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
