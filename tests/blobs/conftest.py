from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.blobs.cache import BlobCache
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.s3 import S3Store
from orchestrator.blobs.types import BlobStore
from tests.blobs.faulty_server import BUCKET, Door, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[Door]:
    with s3_server() as door:
        yield door


@pytest.fixture
def door(s3: Door, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    s3.seen.clear()
    s3.let_go.clear()
    yield s3
    s3.faults.clear()
    s3.let_go.set()


def bucket_store(folder: Path, prefix: str, **options: int | float) -> S3Store:
    cache = BlobCache(folder, most_bytes=int(options.pop("most_bytes", 1 << 30)))
    return S3Store(BUCKET, prefix, cache=cache, **options)  # type: ignore[arg-type]


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "blobs")
    request.getfixturevalue("door")
    return bucket_store(tmp_path / "cache", request.node.name)
