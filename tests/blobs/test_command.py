from __future__ import annotations

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.blobs import sharing
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.services import store

pytestmark = pytest.mark.django_db
MONTH_AGO = 1_700_000_000


def ask(*words: str) -> str:
    out = StringIO()
    call_command("blobs", *words, stdout=out)
    return out.getvalue()


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, settings: Any) -> None:
    settings.BLOBS = str(tmp_path / "shared")
    settings.DATA_DIR = tmp_path / "data"


def test_only_what_no_row_names_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "adapters" / "3"
    folder.mkdir(parents=True)
    (folder / "weights").write_text("w")
    taken = sharing.take(folder)
    assert taken is not None
    sharing.record(taken)
    blobs = store()
    assert isinstance(blobs, FolderStore)
    left = blobs.put(b"left behind")
    for each in list(blobs.all()):
        os.utime(blobs.path(each.sha256), (MONTH_AGO, MONTH_AGO))
    young = blobs.put(b"just now")

    assert "2 in use, 1 would be removed (11 bytes), 1 unnamed" in ask("--clean", "--dry-run")
    assert blobs.exists(left.sha256)
    assert "2 in use, 1 removed (11 bytes), 1 unnamed" in ask("--clean")
    assert not blobs.exists(left.sha256)
    assert blobs.exists(young.sha256)
    assert sharing.is_kept(folder)


def test_a_store_that_cannot_be_written_is_told(tmp_path: Path, settings: Any) -> None:
    assert "written and read" in ask("--check")
    (tmp_path / "file").touch()
    settings.BLOBS = str(tmp_path / "file")
    with pytest.raises(CommandError, match="cannot write to"):
        ask("--check")
    settings.BLOBS = "nonsense"
    with pytest.raises(CommandError, match="SWITCHBACK_BLOBS='nonsense'"):
        ask("--check")
