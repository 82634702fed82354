"""What one host kept before there was a common store, fetched by a second one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.blobs import sharing
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.services import store
from orchestrator.moving.errors import MovingError
from orchestrator.moving.offering import offer
from tests.base import make_project
from tests.moving.installations import put
from tests.web.build import make_training_job

pytestmark = pytest.mark.django_db

WEIGHTS = "publish/v0002/adapter_model.safetensors"


def test_another_host_finds_what_the_first_one_kept(tmp_path: Path, settings: Any) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    settings.DATA_DIR = first
    job = make_training_job(make_project())
    job.folder = str(first / "training" / str(job.pk))
    job.save()
    put(
        first,
        {
            f"training/{job.pk}/{WEIGHTS}": b"weights",
            f"training/{job.pk}/checkpoints/LATEST": b"step-2",
            f"training/{job.pk}/runner.log": b"of this host",
            "adapters/5/adapter_config.json": b"{}",
            "lens/lens.1.json": b"[1]",
        },
    )
    blob = FolderStore(first / "blobs").put(b"an upload")
    with pytest.raises(MovingError, match="SWITCHBACK_BLOBS is not set"):
        offer(first, lambda line: None)
    settings.BLOBS = str(tmp_path / "common")
    assert offer(first, lambda line: None) == {
        "blobs": 1,
        "trainings": 1,
        "files": 2,
        "environments": 0,
    }
    assert not any(offer(first, lambda line: None).values()), "what is offered is not sent again"
    first.rename(tmp_path / "away")
    settings.DATA_DIR = second
    version = sharing.local((Path(job.folder) / WEIGHTS).parent)
    assert version == (second / "training" / str(job.pk) / WEIGHTS).parent
    assert (version / "adapter_model.safetensors").read_bytes() == b"weights"
    assert sharing.local(first / "lens/lens.1.json").read_bytes() == b"[1]"
    assert (sharing.local(first / "adapters/5") / "adapter_config.json").read_bytes() == b"{}"
    assert store().read(blob.sha256) == b"an upload"
    assert not (second / "training" / str(job.pk) / "runner.log").exists()
