"""What every store of blobs promises."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.blobs.errors import BlobDamaged, BlobMissing, BlobStoreDown
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.services import store_at
from orchestrator.blobs.types import BlobStore

ABSENT = "0" * 64


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_what_was_put_comes_back_by_its_hash(store: BlobStore, tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000  # more than one piece
    (tmp_path / "file").write_bytes(content)

    put = store.put(content)
    again = store.put(content[start : start + 7777] for start in range(0, len(content), 7777))
    from_file = store.put_file(tmp_path / "file")

    assert put == again == from_file
    assert (put.sha256, put.size) == (sha(content), len(content))
    assert store.read(put.sha256) == content
    assert b"".join(store.stream(put.sha256)) == content
    with store.local(put.sha256) as path:
        assert path.read_bytes() == content
    with store.open(put.sha256) as file:
        file.seek(-3, 2)
        assert file.read() == content[-3:]


def test_an_empty_blob_is_a_blob(store: BlobStore) -> None:
    assert store.read(store.put(b"").sha256) == b""
    assert store.read(store.put([]).sha256) == b""


def test_what_is_not_there_is_missing(store: BlobStore) -> None:
    store.check()
    with pytest.raises(BlobMissing, match=ABSENT):
        store.read(ABSENT)
    with pytest.raises(BlobMissing):
        store.stream(ABSENT)
    with pytest.raises(BlobMissing), store.local(ABSENT):
        raise AssertionError("nothing to read")
    assert store.find(ABSENT) is None
    assert not store.exists(ABSENT)
    store.delete(ABSENT)


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "A" * 64, "0" * 63 + "/", "0" * 64 + "\n"]
)
def test_no_other_text_becomes_a_path(store: BlobStore, name: str) -> None:
    for ask in (store.read, store.find, store.exists, store.delete):
        with pytest.raises(ValueError, match="no sha256"):
            ask(name)


def test_blobs_are_listed_in_order_and_gone_once_deleted(store: BlobStore) -> None:
    puts = sorted((store.put(f"blob {i}".encode()) for i in range(5)), key=lambda each: each.sha256)
    assert [(each.sha256, each.size) for each in store.all()] == [
        (each.sha256, each.size) for each in puts
    ]
    store.delete(puts[2].sha256)
    assert not store.exists(puts[2].sha256)
    with pytest.raises(BlobMissing):
        store.read(puts[2].sha256)
    assert len(list(store.all())) == 4


def test_a_source_that_breaks_off_leaves_nothing(store: BlobStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("the client went away")

    with pytest.raises(RuntimeError, match="went away"):
        store.put(broken())
    assert list(store.all()) == []


def test_a_damaged_file_of_the_folder_is_told(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    blob = store.put(b"as it was")
    store.path(blob.sha256).write_bytes(b"as it is!")
    with pytest.raises(BlobDamaged, match=blob.sha256):
        store.read(blob.sha256)
    with pytest.raises(BlobDamaged), store.local(blob.sha256):
        raise AssertionError("it is damaged")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BlobStoreDown, match=str(tmp_path / "file")):
        FolderStore(tmp_path / "file").put(b"x")


def test_the_setting_chooses_the_store(tmp_path: Path) -> None:
    assert repr(store_at("", tmp_path, 1)) == str(tmp_path / "blobs")
    assert repr(store_at("/shared/of/all", tmp_path, 1)) == "/shared/of/all"
    assert repr(store_at("s3://name/below/it", tmp_path, 1)) == "s3://name/below/it/"
    with pytest.raises(ValueError, match="SWITCHBACK_BLOBS='blobs'"):
        store_at("blobs", tmp_path, 1)
