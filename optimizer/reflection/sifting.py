"""Which edits of an answer may be tried, and why the others may not.

Support is what the evidence shows, not what was claimed: the tasks that an edit names and that
stood in the question. A buried edit comes back only with more of it than it had when it was buried;
words count, not blanks and letter case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from optimizer.edits import Edit, Op
from optimizer.harness import CONFIG, Harness
from optimizer.lint import Finding, Rules, Severity, accepted, plain_identity
from optimizer.reflection.answer import Answer


@dataclass(frozen=True)
class Grave:
    """An edit that was rejected."""

    edit: Edit
    reason: str
    support: int = 0
    """It had then."""


@dataclass(frozen=True)
class Refused:
    edit: Edit | None
    """None: it could not be read."""
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """As `Proposal.refused` keeps it."""
        return {
            "edit": None if self.edit is None else self.edit.to_json(),
            "findings": [f"{finding.code}: {finding.message}" for finding in self.findings],
        }

    @property
    def sentence(self) -> str:
        what = "" if self.edit is None else f"{self.edit.op} {self.edit.component}: "
        return what + "; ".join(finding.message for finding in self.findings)


@dataclass(frozen=True)
class Sifted:
    kept: tuple[Edit, ...]
    refused: tuple[Refused, ...] = ()


def sift(
    answer: Answer,
    harness: Harness,
    *,
    components: Collection[str],
    max_edits: int,
    rewrite: bool = False,
    tasks: Collection[str] = (),
    least_support: int = 0,
    graves: Iterable[Grave] = (),
    rules: Rules | None = None,
) -> Sifted:
    """`tasks`: those that stood in the question. `least_support`: of an edit that a person answers
    for.
    """
    refused = [Refused(None, (_error("unreadable", problem),)) for problem in answer.problems]
    buried = {plain_identity(grave.edit): grave for grave in graves}
    allowed: list[Edit] = []
    for edit in answer.edits:
        sources = tuple(task for task in edit.sources if task in tasks)
        edit = replace(edit, sources=sources, support=max(len(sources), least_support))
        finding = _out_of_bounds(edit, components, rewrite) or _grave(edit, buried)
        if finding is None and len(allowed) >= max_edits:
            finding = _error("many", f"more than {max_edits} edits; these came after")
        if finding is not None:
            refused.append(Refused(edit, (finding,)))
        else:
            allowed.append(edit)
    kept, rejected = accepted(allowed, harness, rules=rules)
    refused += [Refused(edit, tuple(findings)) for edit, findings in rejected]
    return Sifted(tuple(kept), tuple(refused))


def _out_of_bounds(edit: Edit, components: Collection[str], rewrite: bool) -> Finding | None:
    if edit.component not in components:
        accepts = ", ".join(components) or "nothing"
        return _error("component", f"{edit.component[:80]!r} is not to be changed; only {accepts}")
    is_text = edit.component != CONFIG and not edit.anchor
    if edit.op is Op.SET and is_text and not rewrite:
        return _error("whole", "sets a whole component; asked for were single changes")
    return None


def _grave(edit: Edit, buried: dict[tuple[str, ...], Grave]) -> Finding | None:
    grave = buried.get(plain_identity(edit))
    if grave is None or edit.support > grave.support:
        return None
    return _error(
        "buried",
        f"was buried ({grave.reason}) with {grave.support} tasks behind it and has "
        f"{edit.support}: it comes back only with more",
    )


def _error(code: str, message: str) -> Finding:
    return Finding(code, Severity.ERROR, message)
