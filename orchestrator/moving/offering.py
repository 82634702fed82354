"""What an installation kept in its data folder goes where further hosts find it.

While there is one host, nothing of its data folder is offered to others. Once `SWITCHBACK_BLOBS`
names a bucket or a common folder, what is made from then on goes there by itself; this is for what
was made before. Each piece is offered by whoever would have offered it, and skipped if it is
offered already, so that it may be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.blobs import sharing
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.services import FOLDER, is_shared, store
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.environments.packages.install import share_installation
from orchestrator.environments.packages.installation import packages_root
from orchestrator.moving.errors import MovingError
from orchestrator.trainings import folders
from training.models import TrainingJob


def offer(data: Path, say: Callable[[str], None]) -> dict[str, int]:
    """How many of each kind were offered. Raises MovingError, BlobError."""
    if not is_shared():
        raise MovingError(
            "SWITCHBACK_BLOBS is not set: there is no place that other hosts could reach."
        )
    done = {"blobs": 0, "trainings": 0, "files": 0, "environments": 0}
    for blob in FolderStore(data / FOLDER).all():
        if not store().exists(blob.sha256):
            store().put_file(FolderStore(data / FOLDER).path(blob.sha256))
            done["blobs"] += 1
    for job in TrainingJob.objects.order_by("pk"):
        folder = folders.folder_of(job)
        step = folders.step_in(folder)
        offered = sharing.shared_version(folder)
        if folder.is_dir() and (offered is None or offered < step):
            say(f"training {job.pk}")
            if (taken := folders.share(job)) is not None:
                sharing.record(taken, version=max(0, step))
                done["trainings"] += 1
    for path in _alone(data):
        if not sharing.is_offered(path):
            say(path.relative_to(data).as_posix())
            if (taken := sharing.take(path)) is not None:
                sharing.record(taken)
                done["files"] += 1
    for source in EnvironmentVersion.objects.filter(source__has_key="installation").values_list(
        "source", flat=True
    ):
        folder = packages_root(data) / str(source["installation"])
        if folder.is_dir() and not sharing.is_offered(folder):
            say(folder.relative_to(data).as_posix())
            if (taken := share_installation(source, data)) is not None:
                sharing.record(taken)
                done["environments"] += 1
    return done


def _alone(data: Path) -> Iterator[Path]:
    """Imported adapters, and looks at the tokens of checkpoints."""
    yield from sorted(path for path in data.glob("adapters/*") if path.is_dir())
    yield from sorted(data.glob("lens/*.json"))
