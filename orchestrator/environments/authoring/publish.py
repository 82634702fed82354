"""From a draft to a frozen version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db import transaction

from orchestrator.environments.authoring.content import content_of
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.authoring.holding import hold
from orchestrator.environments.authoring.rows import problem_of
from orchestrator.environments.authoring.task_checks import check_limits
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import EnvironmentDraft, EnvironmentVersion, Split
from orchestrator.environments.resources import Resources
from orchestrator.environments.services import NewTask, create_version
from orchestrator.projects.models import User

MAX_SHOWN = 20


@dataclass(frozen=True)
class Problem:
    text: str
    task: str = ""
    """Key of the task; empty for the settings."""
    is_warning: bool = False
    """It can be published all the same."""


@dataclass(frozen=True)
class Published:
    version: EnvironmentVersion
    is_new: bool
    """False: a version with exactly this content was there."""


def problems_of(draft: EnvironmentDraft) -> list[Problem]:
    """What keeps a draft from being published, then what its author should know."""
    return _problems(draft, [content_of(row) for row in draft.tasks.all()])


def _problems(draft: EnvironmentDraft, tasks: list[NewTask]) -> list[Problem]:
    kind = KINDS[draft.environment.kind]
    found = []
    for check in (
        lambda: kind.check_source(draft.source),
        lambda: Resources.from_json(draft.resources),
        lambda: check_limits(draft.settings),
    ):
        try:
            check()
        except (ValueError, TypeError) as exc:
            found.append(Problem(str(exc)))
    for item in kind.source_fields:
        if item.is_required and not draft.source.get(item.name):
            found.append(Problem(f"{item.label} is missing in the settings."))
    if not tasks:
        found.append(Problem("There is no task yet. Add one, or upload a table of them."))
    bad = [(task.key, problem) for task in tasks if (problem := problem_of(kind, task))]
    found += [Problem(f"{field}: {reason}", task=key) for key, (field, reason) in bad[:MAX_SHOWN]]
    if len(bad) > MAX_SHOWN:
        found.append(Problem(f"{len(bad) - MAX_SHOWN:,} further tasks do not fit either."))
    splits = Counter(task.split for task in tasks)
    missing = [split for split in Split.values if tasks and not splits[split]]
    if missing:
        found.append(
            Problem(
                f"No task is in {' or '.join(missing)}: a climb needs train, select and test.",
                is_warning=True,
            )
        )
    return found


def publish(*, actor: User, draft: EnvironmentDraft, revision: int, note: str = "") -> Published:
    """Makes the draft the newest version and ends it.

    Raises:
        DraftConflictError: the draft has changed since its author looked at it.
        DraftRefusedError: something is missing or does not fit; says what.
    """
    with transaction.atomic():
        draft = hold(draft, actor)
        if draft.revision != revision + 1:
            raise DraftConflictError(
                "The draft has changed since you looked at it. Look at what changed and publish "
                "again."
            )
        tasks = [content_of(row) for row in draft.tasks.order_by("key")]
        problems = [item for item in _problems(draft, tasks) if not item.is_warning]
        if problems:
            raise DraftRefusedError(" ".join(_sentence(item) for item in problems))
        newest = draft.environment.versions.order_by("-number").first()
        version = create_version(
            environment=draft.environment,
            source=draft.source,
            tasks=tasks,
            settings=draft.settings,
            resources=draft.resources,
            description=draft.description,
            note=note.strip()[:200],
            created_by=actor,
        )
        draft.delete()
    return Published(version, is_new=newest is None or version.number > newest.number)


def _sentence(problem: Problem) -> str:
    return f"{problem.task}: {problem.text}" if problem.task else problem.text
