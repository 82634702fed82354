"""Asking for an export or an import, and ending one. The work itself is in `jobs`."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.http import Http404
from django.utils import timezone

from orchestrator.blobs.services import store
from orchestrator.jobs import services as jobs
from orchestrator.keeping.archive.reading import look_into
from orchestrator.keeping.errors import KeepingRefused
from orchestrator.keeping.models import OPEN_STATES, Direction, Transfer, WorkState
from orchestrator.projects import storage
from orchestrator.projects.access import require
from orchestrator.projects.models import Membership, Project, Role, User
from unpacking.limits import amount

EXPORT, IMPORT, DISCARD = "keeping.export", "keeping.import", "keeping.discard"


def start_export(*, actor: User, project: Project, with_checkpoints: bool = False) -> Transfer:
    """Queues it; one that is under way already is returned as it is. Only for admins: the file has
    everything that every member wrote. Raises StorageFull.
    """
    require(actor, project, Role.ADMIN)
    storage.check(project.pk)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        under_way = Transfer.objects.filter(
            project=project, direction=Direction.EXPORT, state__in=OPEN_STATES
        ).first()
        if under_way is not None:
            return under_way
        transfer = Transfer.objects.create(
            direction=Direction.EXPORT,
            project=project,
            name=project.name,
            with_checkpoints=with_checkpoints,
            created_by=actor,
        )
        return _queued(transfer, EXPORT)


def start_import(*, actor: User, file: Iterable[bytes], name: str = "") -> Transfer:
    """Takes the file in, looks at its manifest, and queues the rest. Raises ArchiveInvalid.

    `name`: of the new project; the exported one's if empty.
    """
    with _drafted(file) as path:
        manifest = look_into(path)
        blob = store().put_file(path)
    with transaction.atomic():
        transfer = Transfer.objects.create(
            direction=Direction.IMPORT,
            name=(name.strip() or manifest.project)[:100],
            with_checkpoints=manifest.has_checkpoints,
            total=sum(manifest.rows.values()),
            file_sha256=blob.sha256,
            size_bytes=blob.size,
            created_by=actor,
        )
        return _queued(transfer, IMPORT)


def cancel(*, actor: User, transfer: Transfer) -> None:
    """Its half work is taken away. Nothing happens to one that has ended."""
    require_its_owner(actor, transfer)
    if transfer.job is not None and not transfer.has_ended:
        jobs.cancel(job=transfer.job)


def remove_file(*, actor: User, transfer: Transfer) -> None:
    """The row stays and says that there was one. The bytes go with the next cleaning."""
    require_its_owner(actor, transfer)
    if not transfer.has_ended:
        raise KeepingRefused("It is under way: cancel it first.")
    forget_file(transfer)


def forget_file(transfer: Transfer) -> None:
    Transfer.objects.filter(pk=transfer.pk).update(file_sha256="")


def require_its_owner(actor: User, transfer: Transfer) -> None:
    """Of an export the project's admins, of an import who brought the file.

    Raises Http404 for strangers and PermissionDenied for other members.
    """
    if transfer.direction == Direction.EXPORT and transfer.project is not None:
        require(actor, transfer.project, Role.ADMIN)
    elif transfer.created_by_id != actor.pk and not actor.is_superuser:
        raise Http404("No such object.")


def end(transfer_id: int, state: WorkState, error: str = "", **changed: object) -> None:
    """Only of one that has not ended."""
    Transfer.objects.filter(pk=transfer_id, state__in=OPEN_STATES).update(
        state=state, error=error, doing="", ended_at=timezone.now(), **changed
    )


def open_to_its_owner(transfer: Transfer, project: Project) -> None:
    """The last step of an import. Needs a transaction."""
    if transfer.created_by is not None:
        Membership.objects.get_or_create(
            project=project, user=transfer.created_by, defaults={"role": Role.ADMIN}
        )


def version() -> str:
    """Of the product."""
    with (Path(settings.BASE_DIR) / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


@contextmanager
def draft_folder() -> Iterator[Path]:
    """On the disk of the data folder, which is the large one; gone after the block."""
    above = Path(settings.DATA_DIR) / "tmp"
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="archive-", dir=above) as folder:
        yield Path(folder)


@contextmanager
def _drafted(file: Iterable[bytes]) -> Iterator[Path]:
    with draft_folder() as folder:
        path, size = folder / "sent.zip", 0
        with path.open("wb") as draft:
            for chunk in file:
                size += len(chunk)
                if size > settings.MAX_ARCHIVE_BYTES:
                    raise KeepingRefused(
                        f"The file has more than {amount(settings.MAX_ARCHIVE_BYTES)} "
                        "(SWITCHBACK_MAX_ARCHIVE_MB). Export without checkpoints, or have the "
                        "operator raise the limit."
                    )
                draft.write(chunk)
        yield path


def _queued(transfer: Transfer, kind: str) -> Transfer:
    transfer.job = jobs.enqueue(kind=kind, spec={"transfer_id": transfer.pk}, max_attempts=3)
    transfer.save(update_fields=["job"])
    return transfer
