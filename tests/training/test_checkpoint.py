"""Checkpoints: whole or absent, owned by one manifest, the last few kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from training.checkpoint import (
    latest_checkpoint,
    remove_leftovers,
    save_checkpoint,
    write_folder,
)
from training.errors import CheckpointError


def save(root: Path, step: int, **changes: object) -> Path:
    options: dict[str, object] = {
        "manifest_sha256": "m" * 64,
        "state": {"metrics": {"loss": step}},
        "files": {"adapter/weights": b"w" * step, "optim": b"o"},
        "keep": 2,
        **changes,
    }
    return save_checkpoint(root, step=step, **options)  # type: ignore[arg-type] # a test's shorthand


def test_the_latest_checkpoint_is_found_and_older_ones_go(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    ref = latest_checkpoint(tmp_path, manifest_sha256="m" * 64)
    assert ref is not None
    assert (ref.step, ref.path.name) == (3, "step-000003")
    assert ref.state["metrics"] == {"loss": 3}
    assert (ref.path / "adapter" / "weights").read_bytes() == b"www"
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-000002", "step-000003"]


def test_no_checkpoint_yet_is_none(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "missing", manifest_sha256="m") is None


def test_another_manifest_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(CheckpointError, match="belongs to another manifest"):
        latest_checkpoint(tmp_path, manifest_sha256="n" * 64)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "state.json").unlink()
    with pytest.raises(CheckpointError, match="step-000001 is damaged"):
        latest_checkpoint(tmp_path, manifest_sha256="m" * 64)


def test_a_full_disk_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=r"No space left.*saved before is intact"):
            save(tmp_path, 2)
    ref = latest_checkpoint(tmp_path, manifest_sha256="m" * 64)
    assert ref is not None
    assert ref.step == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["LATEST", "step-000001"]


def test_what_an_interrupted_writer_left_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".writing-step-000002-99").mkdir()
    (tmp_path / ".writing-LATEST-99").write_text("x")
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["LATEST", "step-000001"]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "v1", {"a": b"1", "b": b"2"})
    write_folder(tmp_path / "v1", {"a": b"3"})
    assert [p.name for p in (tmp_path / "v1").iterdir()] == ["a"]
