"""What adds harnesses to a project's library. A harness is never changed: a change makes another.

Equal texts are one harness, whoever brought them: storing what is there already gives that one,
with the label that it has.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.errors import HarnessInvalid
from optimizer.harness import CONFIG, INSTRUCTIONS, Harness
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.harnesses.errors import ChangeRefused
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User

MAX_LABEL = 120


@dataclass(frozen=True)
class Stored:
    version: HarnessVersion
    is_new: bool


def add_harness(*, actor: User, project: Project, harness: Harness, label: str = "") -> Stored:
    """Keeps the harness under its content's address."""
    require(actor, project, Role.EDITOR)
    known = HarnessVersion.objects.filter(project=project, sha256=harness.sha256).exists()
    version = store_harness(project_id=project.pk, harness=harness, label=label.strip()[:MAX_LABEL])
    return Stored(version, not known)


def changed(texts: dict[str, str], path: str, text: str | None) -> Harness:
    """The harness with another text for one file; None takes the file away. Pure.

    Raises ChangeRefused, whose message names the file and what it accepts.
    """
    path = path.strip()
    if text is None:
        if path in (CONFIG, INSTRUCTIONS):
            raise ChangeRefused(f"{path}: every harness has it; empty it instead.")
        # A skill goes with its files; one of these goes alone.
        below = path.removesuffix("SKILL.md") if path.endswith("/SKILL.md") else f"{path}/"
        after = {
            each: old for each, old in texts.items() if each != path and not each.startswith(below)
        }
    else:
        after = {**texts, path: text.replace("\r\n", "\n")}
    try:
        harness = Harness.from_components(after)
    except HarnessInvalid as error:
        raise ChangeRefused(str(error)) from error
    if harness.components() == _canonical(texts):
        raise ChangeRefused(f"{path}: this changes nothing, so there is nothing to save.")
    return harness


def rename_harness(*, actor: User, version: HarnessVersion, label: str) -> None:
    """A label is for people; the address stays."""
    require(actor, version.project_id, Role.EDITOR)
    HarnessVersion.objects.filter(pk=version.pk).update(label=label.strip()[:MAX_LABEL])


def _canonical(texts: dict[str, str]) -> dict[str, str]:
    try:
        return Harness.from_components(texts).components()
    except HarnessInvalid:
        return texts
