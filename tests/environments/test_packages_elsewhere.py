"""An environment that one host installed is played on another, which has nothing but the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.blobs import sharing
from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.packages.capacity import measure_capacity
from orchestrator.environments.packages.elsewhere import is_shared
from orchestrator.environments.packages.install import installed_source, share_installation
from tests.environments.conftest import needs_bubblewrap
from tests.environments.scaffold import write_scaffold
from tests.environments.test_packages import install, serve

pytestmark = [needs_bubblewrap, pytest.mark.django_db]


def test_it_is_fetched_and_served(tmp_path: Path, settings: Any) -> None:
    settings.BLOBS = str(tmp_path / "store")
    settings.DATA_DIR = tmp_path / "one"
    prepared = install(tmp_path / "one" / "env", path=str(write_scaffold(tmp_path / "source")))
    taken = share_installation(prepared.source, tmp_path / "one" / "env")
    assert taken is not None
    (tmp_path / "one").rename(tmp_path / "gone")

    settings.DATA_DIR = tmp_path / "two"
    with pytest.raises(SourceError, match="register the source on this machine"):
        installed_source(prepared.source, tmp_path / "two" / "env")
    sharing.record(taken)
    with serve(tmp_path / "two" / "env", prepared) as server:
        assert asyncio.run(measure_capacity(server.base_url, 2)) == 1
    installed, _ = installed_source(prepared.source, tmp_path / "two" / "env")
    before = tmp_path / "gone" / installed.folder.relative_to(tmp_path / "two")
    assert (before / "installed.json").read_bytes() == (
        installed.folder / "installed.json"
    ).read_bytes()


def test_a_store_that_lost_it_is_named(tmp_path: Path, settings: Any) -> None:
    settings.BLOBS = str(tmp_path / "store")
    settings.DATA_DIR = tmp_path / "two"
    name = "0" * 24
    sharing.record(sharing.Taken(f"env/packages/{name}", "1" * 64, 1))
    with pytest.raises((SourceError, ServerStartError), match="cannot be fetched"):
        installed_source({"installation": name}, tmp_path / "two" / "env")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("venv/bin/python3.11", False),
        ("venv/lib64", False),
        ("venv/pyvenv.cfg", False),
        ("venv/lib/python3.11/site-packages/a/__pycache__/b.pyc", False),
        ("venv/lib/python3.11/site-packages/a/b.py", True),
        ("venv/bin/tool", True),
        ("src/world/server/app.py", True),
        ("installed.json", True),
    ],
)
def test_what_is_of_the_host_is_made_there(name: str, expected: bool) -> None:
    assert is_shared(name) is expected
