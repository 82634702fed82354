"""Networks and stores that fail in the middle: nothing is half there, nothing false comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.blobs.errors import BlobDamaged, BlobStoreDown
from tests.blobs.conftest import bucket_store
from tests.blobs.faulty_server import Door

CONTENT = b"switchback " * 50_000


def test_refusals_are_asked_again(door: Door, tmp_path: Path) -> None:
    store = bucket_store(tmp_path, "refusals")
    door.faults.extend(["503", "503"])
    blob = store.put(CONTENT)
    door.faults.extend(["503"])
    assert b"".join(store.stream(blob.sha256)) == CONTENT


def test_a_lost_answer_is_asked_for_again(door: Door, tmp_path: Path) -> None:
    store = bucket_store(tmp_path, "lost")
    door.faults.extend(["", "lost"])  # it looks whether the blob is there first
    blob = store.put(CONTENT)
    puts = [path for method, path in door.seen if method == "PUT"]
    assert len(puts) == 2
    assert b"".join(store.stream(blob.sha256)) == CONTENT


def test_a_transfer_that_breaks_off_goes_on_where_it_stopped(door: Door, tmp_path: Path) -> None:
    blob = bucket_store(tmp_path / "one", "cut").put(CONTENT)
    other = bucket_store(tmp_path / "two", "cut")
    door.seen.clear()
    door.faults.extend(["cut"])
    assert other.read(blob.sha256) == CONTENT
    assert len(door.seen) == 2
    assert other.read(blob.sha256) == CONTENT
    assert len(door.seen) == 2, "the second time from the cache"


def test_a_store_that_is_down_is_said_in_time(door: Door, tmp_path: Path) -> None:
    store = bucket_store(tmp_path, "down", attempts=2)
    blob = store.put(CONTENT)
    door.faults.extend(["drop"] * 2)
    with pytest.raises(BlobStoreDown, match="s3://tests/down/"):
        store.find(blob.sha256)
    door.faults.extend(["503"] * 2)
    with pytest.raises(BlobStoreDown, match="503"):
        store.put(b"something else")
    door.faults.extend(["cut"] * 3)
    with pytest.raises(BlobStoreDown, match="broke off"):
        b"".join(store.stream(blob.sha256))
    door.faults.clear()
    assert store.read(blob.sha256) == CONTENT


def test_no_wait_is_without_an_end(door: Door, tmp_path: Path) -> None:
    store = bucket_store(tmp_path, "silent", attempts=1, answer_s=0.5)
    door.faults.append("silent")
    with pytest.raises(BlobStoreDown, match="timeout"):
        store.find("0" * 64)


def test_parts_appear_together_or_not_at_all(door: Door, tmp_path: Path) -> None:
    part = 5 << 20  # the least that S3 takes
    store = bucket_store(tmp_path / "one", "parts", attempts=2, part_bytes=part)
    content = b"a" * part + b"b" * part + b"c"
    # Looked for; upload begun; first part taken, second refused for good; upload ended.
    door.faults.extend(["", "", "", "503", "503"])
    with pytest.raises(BlobStoreDown, match="upload_part"):
        store.put(content)
    assert list(store.all()) == []

    door.faults.extend(["", "", "", "", "", "lost"])  # the end of the upload
    blob = store.put(content)
    assert bucket_store(tmp_path / "two", "parts").read(blob.sha256) == content


def test_content_that_is_not_what_was_asked_for_is_refused(door: Door, tmp_path: Path) -> None:
    import boto3

    store = bucket_store(tmp_path, "damaged")
    blob = store.put(CONTENT)
    key = f"damaged/blobs/{blob.sha256[:2]}/{blob.sha256}"
    boto3.client("s3").put_object(Bucket="tests", Key=key, Body=b"another")
    other = bucket_store(tmp_path / "other", "damaged")
    with pytest.raises(BlobDamaged):
        other.read(blob.sha256)
    with pytest.raises(BlobDamaged):
        other.read(blob.sha256)  # and nothing false was kept


def test_the_cache_keeps_to_its_bound_and_what_is_used_stays_readable(
    door: Door, tmp_path: Path
) -> None:
    big = [bytes([i]) * 400_000 for i in range(8)]
    writer = bucket_store(tmp_path / "writer", "bound")
    blobs = [writer.put(each) for each in big]
    store = bucket_store(tmp_path / "reader", "bound", most_bytes=1_000_000)
    with store.local(blobs[0].sha256) as path:
        for blob, content in zip(blobs, big, strict=True):
            assert store.read(blob.sha256) == content
        kept = list((tmp_path / "reader").glob("[0-9a-f][0-9a-f]/*"))
        assert sum(p.stat().st_size for p in kept) <= 1_000_000
        assert path.read_bytes() == big[0]
    assert not path.exists()


def test_a_damaged_copy_is_fetched_anew(door: Door, tmp_path: Path) -> None:
    store = bucket_store(tmp_path, "copies")
    blob = store.put(CONTENT)
    (copy,) = tmp_path.glob("[0-9a-f][0-9a-f]/*")
    copy.write_bytes(b"flipped")
    assert store.read(blob.sha256) == CONTENT
    copy.write_bytes(b"flipped")
    with store.local(blob.sha256) as path:
        assert path.read_bytes() == CONTENT
