"""How many bytes a project may keep, and keeps. Read at every door that takes more.

What it keeps is measured from above (`orchestrator.keeping.use`), every sweep for rows and every
few minutes for files, so that a door reads six numbers and never sums a table. A project may so
pass its cap by what comes in between two measures; `check` counts what is being brought.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.projects.access import project_for_admin
from orchestrator.projects.models import ProjectLimits, ProjectUse, User

PARTS = {
    "events": "events and their payloads",
    "tokens": "sampled tokens",
    "judges": "logs of judges",
    "traces": "spans from outside",
    "tasks": "tasks of environments",
    "uploads": "files of tasks not taken in yet",
    "checkpoints": "checkpoints and adapters",
    "archives": "files of exports",
}


class StorageFull(RuntimeError):
    """The cap of a project; the text names it, what is used, and who can raise it."""


@dataclass(frozen=True)
class StorageUse:
    by_part: dict[str, int]
    """Bytes by the name of a part."""
    cap: int | None
    """Bytes; None is no cap."""

    @property
    def total(self) -> int:
        return sum(self.by_part.values())

    @property
    def is_full(self) -> bool:
        return self.cap is not None and self.total >= self.cap


def storage_of(project_id: int) -> StorageUse:
    found = ProjectUse.objects.filter(project_id=project_id).values_list("part", "bytes")
    cap = ProjectLimits.objects.filter(project_id=project_id).values_list(
        "storage_bytes", flat=True
    )
    return StorageUse(dict(found), cap.first())


def check(project_id: int, more_bytes: int = 0) -> None:
    """Raises StorageFull if the project may not keep that much more.

    One query where there is no cap, which is the usual case.
    """
    cap = (
        ProjectLimits.objects.filter(project_id=project_id, storage_bytes__isnull=False)
        .values_list("storage_bytes", flat=True)
        .first()
    )
    if cap is None:
        return
    used = sum(ProjectUse.objects.filter(project_id=project_id).values_list("bytes", flat=True))
    if used + more_bytes <= cap and used < max(cap, 1):
        return
    asked = f" {amount(more_bytes)} more are asked for;" if more_bytes else ""
    raise StorageFull(
        f"The project keeps {amount(used)} of the {amount(cap)} it may keep;{asked} nothing more "
        "is taken in. An admin of the project can raise the cap under Settings, Limits, or let old "
        "things go under Settings, Retention."
    )


def set_storage_cap(*, actor: User, project_id: int, storage_bytes: int | None) -> ProjectLimits:
    """None takes the cap away. Only for admins. Raises ValueError below 0."""
    project = project_for_admin(actor, project_id)
    if storage_bytes is not None and storage_bytes < 0:
        raise ValueError("A cap is a number from 0 up, or none.")
    caps = ProjectLimits.objects.filter(project=project).first() or ProjectLimits(project=project)
    caps.storage_bytes = storage_bytes
    caps.save()
    return caps


def amount(n_bytes: int) -> str:
    """`1.5 GB`, `300 MB`: in powers of ten, as disks are sold."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{n_bytes} bytes"
