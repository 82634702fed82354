"""Two hosts with data folders of their own, and a store that both reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.blobs import sharing
from orchestrator.blobs.keeping import in_use
from orchestrator.blobs.models import SharedFolder
from orchestrator.blobs.services import store

pytestmark = pytest.mark.django_db


class Hosts:
    def __init__(self, root: Path, settings: Any) -> None:
        self._root, self._settings = root, settings
        settings.BLOBS = str(root / "shared")

    def on(self, name: str) -> Path:
        """From now on the code runs on this host; its data folder. Those of the others are away."""
        for other in self._root.glob("*/data"):
            other.rename(other.with_name("away"))
        folder = self._root / name / "data"
        if (away := folder.with_name("away")).exists():
            away.rename(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._settings.DATA_DIR = folder
        return folder


@pytest.fixture
def hosts(tmp_path: Path, settings: Any) -> Hosts:
    return Hosts(tmp_path, settings)


def job_folder(data: Path, steps: int) -> Path:
    folder = data / "training" / "7"
    for step in range(1, steps + 1):
        version = folder / "publish" / f"v{step:04d}"
        version.mkdir(parents=True, exist_ok=True)
        (version / "adapter_model.safetensors").write_text(f"weights {step}")
    (folder / "runner.lock").touch()
    return folder


def share(folder: Path, version: int = 0) -> None:
    taken = sharing.take(folder, wanted=lambda name: not name.endswith(".lock"))
    assert taken is not None
    sharing.record(taken, version=version)


def test_another_host_fetches_what_a_row_names(hosts: Hosts) -> None:
    path = job_folder(hosts.on("one"), 3) / "publish" / "v0002"
    share(path.parent.parent)
    data = hosts.on("two")
    assert sharing.is_kept(path)
    found = sharing.local(path)
    assert found == data / "training" / "7" / "publish" / "v0002"
    assert (found / "adapter_model.safetensors").read_text() == "weights 2"
    assert sorted(p.name for p in found.parent.iterdir()) == ["v0002"], "that alone"


def test_without_a_common_store_paths_are_as_they_are(hosts: Hosts, settings: Any) -> None:
    settings.BLOBS = ""
    folder = job_folder(hosts.on("one"), 1)
    assert sharing.take(folder) is None
    assert sharing.local(folder) == folder
    assert sharing.is_kept(folder)
    assert not sharing.is_kept(folder / "publish" / "v0009")


def test_what_nobody_has_is_not_there(hosts: Hosts) -> None:
    hosts.on("two")
    path = "/srv/one/data/training/8/publish/v0001"
    assert not sharing.is_kept(path)
    assert not sharing.local(path).exists()


def test_a_newer_state_replaces_what_a_host_had(hosts: Hosts) -> None:
    old = job_folder(hosts.on("one"), 1)
    share(old, version=1)
    newer = job_folder(hosts.on("two"), 2)
    share(newer, version=2)
    hosts.on("one")
    assert sharing.shared_version(newer) == 2
    assert sharing.fetch_again(newer)
    assert (old / "publish" / "v0002").is_dir()
    assert not (old / "runner.lock").exists()
    assert [p.name for p in old.parent.iterdir()] == ["7"]


def test_a_single_file_is_shared_too(hosts: Hosts) -> None:
    path = hosts.on("one") / "lens" / "a.b.json"
    path.parent.mkdir()
    path.write_text("{}")
    share(path)
    hosts.on("two")
    assert sharing.is_kept(path)
    assert sharing.local(path).read_text() == "{}"


def test_what_is_shared_stays_until_it_is_forgotten(hosts: Hosts) -> None:
    folder = job_folder(hosts.on("one"), 2)
    share(folder)
    assert set(in_use(store())) == {each.sha256 for each in store().all()}
    assert len(in_use(store())) == 3
    sharing.forget(folder)
    assert not SharedFolder.objects.exists()


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/srv/var/training/12/publish/v0001", "training/12/publish/v0001"),
        ("/a/adapters/3", "adapters/3"),
        ("/a/training/12/../../etc", None),
        ("/models/base", None),
        ("/etc/passwd", None),
    ],
)
def test_only_paths_of_data_folders_have_a_key(hosts: Hosts, path: str, key: str | None) -> None:
    hosts.on("one")
    assert sharing.key_of(path) == key
