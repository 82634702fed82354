"""An installation on another host: its files are shared, its interpreter is made there.

Nothing is downloaded or built a second time, so every host runs the same bytes. Hosts need the same
Python and the same kind of machine; the digest that names the installation holds the first.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobError
from orchestrator.environments.errors import SourceError
from orchestrator.environments.packages.installation import DONE, Installation

log = structlog.get_logger(__name__)

_OF_THE_HOST = re.compile(r"venv/(bin/python[^/]*|lib64|pyvenv\.cfg)(/.*)?|.*/__pycache__(/.*)?")
"""What `make_venv` makes, and what Python makes by itself."""


def share(installed: Installation) -> sharing.Taken | None:
    """For `sharing.record`; None where there is no common store, or it cannot be shared."""
    try:
        return sharing.take(installed.folder, wanted=is_shared)
    except (BlobError, FileNotFoundError) as error:
        log.warning("installation not shared", name=installed.folder.name, error=str(error))
        return None


def is_shared(name: str) -> bool:
    return _OF_THE_HOST.fullmatch(name) is None


def fetch(installed: Installation, make_venv: Callable[[Path], None]) -> None:
    """Makes it here, if some host has shared it; the caller lets one process at a time do so.

    Raises SourceError where the store does not give it.
    """
    shutil.rmtree(installed.folder, ignore_errors=True)  # whatever is there is not complete
    done = installed.folder / DONE
    try:
        if not sharing.local(installed.folder).is_dir():
            return
        facts = done.read_bytes()
        done.unlink()
        make_venv(installed.folder / "venv")
        for folder in (installed.source, installed.data, installed.wheels):
            folder.mkdir(exist_ok=True)  # an empty one has no files to share
        done.write_bytes(facts)
    except (BlobError, OSError) as error:
        raise SourceError(
            f"the installation {installed.folder.name} cannot be fetched from the host where it "
            f"was registered: {error}"
        ) from error
