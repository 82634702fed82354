from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.blobs import keeping
from orchestrator.blobs.errors import BlobDamaged, BlobError, BlobMissing
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.trees import blobs_of, fetch_tree, put_tree
from orchestrator.blobs.types import BlobStore


def made(folder: Path) -> Path:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"\0" * 100_000)
    (folder / "deep" / "er" / "notes ü.txt").write_text("same")
    (folder / "deep" / "run.sh").write_text("same")
    (folder / "deep" / "run.sh").chmod(0o755)
    return folder


def content(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_folder_comes_back_elsewhere_as_it_was(store: BlobStore, tmp_path: Path) -> None:
    source = made(tmp_path / "source")
    tree = put_tree(store, source)
    fetch_tree(store, tree.sha256, tmp_path / "there" / "copy")
    assert content(tmp_path / "there" / "copy") == content(source)
    assert put_tree(store, tmp_path / "there" / "copy") == tree
    assert {each.sha256 for each in store.all()} == blobs_of(store, tree.sha256)


def test_a_folder_is_whole_or_not_there(store: BlobStore, tmp_path: Path) -> None:
    tree = put_tree(store, made(tmp_path / "source"))
    gone = sorted(blobs_of(store, tree.sha256) - {tree.sha256})[0]
    store.delete(gone)
    with pytest.raises(BlobMissing):
        fetch_tree(store, tree.sha256, tmp_path / "out" / "copy")
    assert list((tmp_path / "out").iterdir()) == []


def test_one_that_is_there_stays(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "blobs")
    tree = put_tree(store, made(tmp_path / "source"))
    (tmp_path / "copy").mkdir()
    fetch_tree(store, tree.sha256, tmp_path / "copy")
    assert content(tmp_path / "copy") == {}


def test_links_are_refused(tmp_path: Path) -> None:
    source = made(tmp_path / "source")
    (source / "link").symlink_to("/etc/passwd")
    with pytest.raises(BlobError, match="link"):
        put_tree(FolderStore(tmp_path / "blobs"), source)
    put_tree(FolderStore(tmp_path / "blobs"), source, wanted=lambda name: name != "link")


@pytest.mark.parametrize("path", ["/etc/cron.d/x", "../x", "a/../../x", "", 7, "a\\..\\x"])
def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path, path: object) -> None:
    store = FolderStore(tmp_path / "blobs")
    file = store.put(b"x")
    files = [{"path": path, "sha256": file.sha256, "size": 1, "run": False}]
    tree = store.put(json.dumps({"format": "switchback.tree.1", "files": files}).encode())
    with pytest.raises(BlobDamaged, match="no list of files"):
        fetch_tree(store, tree.sha256, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_no_row_names_goes_when_it_is_old(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, unnamed = store.put(b"named"), store.put(b"unnamed")
    monkeypatch.setattr(keeping, "_users", {"tests": lambda _: [named.sha256]})

    young = keeping.clean(store)
    assert (young.kept, young.removed, young.spared) == (1, 0, 1)
    dry = keeping.clean(store, spared=timedelta(0), is_dry=True)
    assert (dry.removed, dry.bytes_removed) == (1, 7)
    assert store.exists(unnamed.sha256)
    keeping.clean(store, spared=timedelta(0))
    assert [each.sha256 for each in store.all()] == [named.sha256]


def test_nothing_goes_where_users_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    blob = store.put(b"x")

    def broken(_: BlobStore) -> list[str]:
        raise BlobMissing("a list is gone")

    monkeypatch.setattr(keeping, "_users", {"tests": broken})
    with pytest.raises(BlobMissing):
        keeping.clean(store, spared=timedelta(0))
    assert store.exists(blob.sha256)
