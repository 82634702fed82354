"""The file of a backup: what went in comes out, and nothing that is not whole is believed."""

from __future__ import annotations

import stat
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.moving import files
from orchestrator.moving.archive import MANIFEST, Manifest, reading, writing
from orchestrator.moving.errors import DamagedError, MovingError
from tests.moving.installations import files_of, put

KEPT = {
    "training/1/publish/v0001/adapter.safetensors": b"weights" * 1000,
    "env/packages/world/pyproject.toml": b"[project]\n",
    "lens/lens.1.json": b"{}",
    "a-folder-of-a-later-version/things": b"\x00\xff",
}
NOT_KEPT = {
    "secret_key": b"x" * 40,
    "up.lock": b"{}",
    "broker/messages/1.msg": b"m",
    "logs/web.log": b"l",
    "blob-cache/ab/cd": b"c",
    "tmp/x": b"t",
    "models/smollm2-135m/model.safetensors": b"m" * 5000,
    "env/world/servers/server.log": b"s",
    "db.sqlite3": b"d",
    "db.sqlite3-wal": b"w",
}


def _manifest() -> Manifest:
    return Manifest("2026-01-01T00:00:00+00:00", "0.1.0", "sqlite", "/data", [], {}, "f")


def _write(path: Path, data: Path, **options: bool) -> None:
    with writing(path, lambda line: None) as writer:
        manifest = _manifest()
        manifest.moved_meanwhile = files.pack(data, writer, with_models=False, **options)
        writer.finish(manifest)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    put(folder, {**KEPT, **NOT_KEPT})
    program = folder / "env/packages/world/bin/python"
    program.parent.mkdir()
    program.symlink_to("/usr/bin/python3")
    (folder / "env/packages/world/run").write_bytes(b"#!/bin/sh\n")
    (folder / "env/packages/world/run").chmod(0o755)
    return folder


def test_files_links_and_modes_come_back(data: Path, tmp_path: Path) -> None:
    path, new = tmp_path / "b.zip", tmp_path / "new"
    _write(path, data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    new.mkdir()
    with reading(path) as reader:
        reader.check()
        files.require_room(new, reader)
        files.unpack(new, reader)
    found = files_of(new)
    assert found.pop("env/packages/world/run") == b"#!/bin/sh\n"
    found.pop("env/packages/world/bin/python", None)
    assert found == KEPT
    assert (new / "env/packages/world/bin/python").readlink() == Path("/usr/bin/python3")
    assert (new / "env/packages/world/run").stat().st_mode & 0o111
    with reading(path) as reader, pytest.raises(MovingError, match="files already"):
        files.require_room(new, reader)


def test_models_are_taken_when_asked_for(data: Path) -> None:
    found = {str(path.relative_to(data)) for path in files.paths(data, with_models=True)}
    assert "models/smollm2-135m/model.safetensors" in found
    assert not found & (set(NOT_KEPT) - {"models/smollm2-135m/model.safetensors"})


@pytest.mark.parametrize("name", ["files/lens/lens.1.json", MANIFEST])
def test_a_changed_byte_is_found(data: Path, tmp_path: Path, name: str) -> None:
    """Packed anew with another content, so that only our own hashes can tell."""
    path, bad = tmp_path / "b.zip", tmp_path / "bad.zip"
    _write(path, data)
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(bad, "w") as other:
        for info in good.infolist():
            content = good.read(info)
            other.writestr(info, content.replace(b"{", b"[") if info.filename == name else content)
    with pytest.raises(DamagedError), reading(bad) as reader:
        reader.check()


def test_a_file_that_was_cut_off_is_none(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    _write(path, data)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DamagedError, match="cut off"), reading(path):
        pass


def test_a_member_too_many_is_found(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    _write(path, data)
    with zipfile.ZipFile(path, "a") as more:
        more.writestr("files/training/more", b"x")
    with reading(path) as reader, pytest.raises(DamagedError, match="files/training/more"):
        reader.check()


@pytest.mark.parametrize("name", ["files/../../x", "/etc/x", "files/a/../../x", "files\\..\\x"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "b.zip"
    with writing(path, lambda line: None) as writer:
        with writer.open(name) as add:
            add(b"x")
        writer.finish(_manifest())
    with pytest.raises(DamagedError, match="leads out"), reading(path):
        pass


def test_nothing_is_written_over_and_nothing_half_stays(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with suppress(ZeroDivisionError), writing(path, lambda line: None) as writer:
        files.pack(data, writer, with_models=False)
        _ = 1 / 0
    assert sorted(tmp_path.iterdir()) == [data]
    path.write_bytes(b"mine")
    with pytest.raises(MovingError, match="exists"), writing(path, lambda line: None):
        pass
    assert path.read_bytes() == b"mine"


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(MANIFEST, '{"format": 2, "members": {}, "migrations": []}')
    with pytest.raises(MovingError, match="format 2"), reading(path):
        pass
