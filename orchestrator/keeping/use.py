"""How many bytes each project has, kept up to date cheaply.

Rows of logs are only added, so a measure counts those above the key it came to last time; once a
day, and after retention has removed something, it counts from nothing. Texts are counted in
characters, which the database knows without reading them, and files in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import F, Max, Min, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Coalesce, Length
from django.utils import timezone

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import Task, TaskUpload
from orchestrator.events.models import Event
from orchestrator.judging.models import JudgeCall
from orchestrator.keeping.models import Direction, Transfer
from orchestrator.projects.models import Project, ProjectUse
from orchestrator.runs.models import TokenRow
from orchestrator.traces.models import OutsideEvent
from training.models import TrainingJob

FULL_EVERY = timedelta(days=1)
ROWS_EVERY, FILES_EVERY = timedelta(seconds=20), timedelta(minutes=10)
AT_ONCE = 50_000
"""Keys of rows that one query looks at, so that none takes long."""
ROW_BYTES = 60
"""Of a row beside its texts, with its place in the indexes."""


@dataclass(frozen=True)
class Rows:
    part: str
    model: Any
    path: str
    """From a row to its project."""
    texts: tuple[str, ...]


ROWS = (
    Rows("events", Event, "stream__project", ("payload",)),
    Rows("tokens", TokenRow, "rollout__run__project", ("ids", "kinds", "logprobs")),
    Rows("judges", JudgeCall, "project", ("request", "replies", "reason")),
    Rows("traces", OutsideEvent, "owner__project", ("body",)),
    Rows("tasks", Task, "version__environment__project", ("prompt", "reset", "spec", "reference")),
    Rows("uploads", TaskUpload, "draft__environment__project", ("rows",)),
)


def measure(*, now: datetime | None = None) -> None:
    """All projects: what is new in the logs, and files where it is time. For the sweep."""
    now = now or timezone.now()
    for rows in ROWS:
        if _is_due(rows.part, ROWS_EVERY, now):
            measure_rows(rows, now)
    for part, find in (("checkpoints", _checkpoints), ("archives", _archives)):
        if _is_due(part, FILES_EVERY, now):
            for project_id, size in find():
                _set(project_id, part, size, 0, now, is_full=True)


def measure_rows(rows: Rows, now: datetime) -> None:
    """Adds what came since the last measure; from nothing once a day."""
    known = {use.project_id: use for use in ProjectUse.objects.filter(part=rows.part)}
    newest = rows.model._base_manager.aggregate(top=Max("pk"))["top"] or 0
    is_full = not known or min(use.full_at for use in known.values()) < now - FULL_EVERY
    start = 0 if is_full else min(use.up_to for use in known.values())
    sizes = dict.fromkeys(Project.objects.values_list("pk", flat=True), 0)
    if not is_full:
        sizes |= {key: use.bytes for key, use in known.items()}
    for found in _pieces(rows, start, newest):
        for project_id, size in found:
            sizes[project_id] = sizes.get(project_id, 0) + size
    for project_id, size in sizes.items():
        # Most projects have nothing new: one statement below says that they were looked at.
        if project_id not in known or known[project_id].bytes != size:
            _set(project_id, rows.part, size, newest, now, is_full=is_full)
    looked = ProjectUse.objects.filter(part=rows.part)
    looked.update(measured_at=now, up_to=newest, **({"full_at": now} if is_full else {}))


def forget(project_id: int) -> None:
    """Something was removed: the next measure counts from nothing."""
    ProjectUse.objects.filter(project_id=project_id).update(
        measured_at=F("measured_at") - FILES_EVERY, full_at=F("full_at") - 2 * FULL_EVERY
    )


def _pieces(rows: Rows, start: int, newest: int) -> Iterator[list[tuple[int, int]]]:
    manager = rows.model._base_manager
    if start >= newest:
        return
    least = manager.filter(pk__gt=start).aggregate(low=Min("pk"))["low"] or newest
    for low in range(least - 1, newest, AT_ONCE):
        found: QuerySet[Any] = manager.filter(pk__gt=low, pk__lte=min(low + AT_ONCE, newest))
        size: Any = 0
        for name in rows.texts:
            size = size + Coalesce(Length(Cast(name, TextField())), 0)
        yield list(
            found.order_by()
            .values_list(rows.path)
            .annotate(size=Sum(size + ROW_BYTES))
            .values_list(rows.path, "size")
        )


def _checkpoints() -> Iterator[tuple[int, int]]:
    """Files of this host; a host without them leaves what another has measured."""
    sizes: dict[int, int] = {}
    jobs = TrainingJob.objects.exclude(folder="").values_list("project", "folder")
    adapters = ModelEndpoint.objects.exclude(adapter_path="").values_list("project", "adapter_path")
    inside = Path(settings.DATA_DIR)
    seen: set[Path] = set()
    for project_id, folder in [*jobs, *adapters]:
        path = Path(folder)
        if path in seen or not path.is_relative_to(inside) or not path.is_dir():
            continue
        if any(above in seen for above in path.parents):
            continue  # an adapter inside the folder of its training
        seen.add(path)
        sizes[project_id] = sizes.get(project_id, 0) + _size(path)
    return iter(sizes.items())


def _archives() -> Iterator[tuple[int, int]]:
    found = (
        Transfer.objects.filter(direction=Direction.EXPORT)
        .exclude(project=None)
        .exclude(file_sha256="")
        .order_by()
        .values_list("project")
        .annotate(size=Sum("size_bytes"))
    )
    sizes = dict.fromkeys(
        ProjectUse.objects.filter(part="archives").values_list("project", flat=True), 0
    )
    return iter({**sizes, **dict(found)}.items())


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
        except FileNotFoundError:  # the trainer removes old ones
            continue
    return total


def _is_due(part: str, every: timedelta, now: datetime) -> bool:
    last = ProjectUse.objects.filter(part=part).aggregate(at=Min("measured_at"))["at"]
    return last is None or last <= now - every


def _set(
    project_id: int, part: str, size: int, up_to: int, now: datetime, *, is_full: bool
) -> None:
    values: dict[str, Any] = {"bytes": size, "up_to": up_to, "measured_at": now}
    if is_full:
        values["full_at"] = now
    ProjectUse.objects.update_or_create(
        project_id=project_id,
        part=part,
        defaults=values,
        create_defaults={"full_at": now, **values},
    )
