"""Messages in files: there as a whole, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection
from kombu.exceptions import ChannelError

from orchestrator.celery import app
from orchestrator.jobs import file_transport


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Any]:
    options = {
        "data_folder_in": str(tmp_path),
        "data_folder_out": str(tmp_path),
        "control_folder": str(tmp_path / "control"),
    }
    (tmp_path / "control").mkdir()
    with Connection("filesystem://", transport_options=options) as connection:
        yield connection.channel()


def test_the_application_uses_it() -> None:
    with app.connection_for_write("filesystem://") as connection:
        assert isinstance(connection.transport, file_transport.Transport)


def test_a_message_cannot_be_read_before_it_is_whole(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    replace = os.replace

    def look(source: Path, target: Path) -> None:
        with pytest.raises(Empty):
            channel._get("work")
        seen.append(json.loads(source.read_bytes()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    channel._put("work", {"number": 1})
    assert seen == [{"number": 1}]
    assert channel._size("work") == 1
    assert channel._get("work") == {"number": 1}


def test_each_queue_has_its_own(channel: Any) -> None:
    for number in range(3):
        channel._put("work", {"number": number})
    channel._put("other", {"number": 9})
    assert channel._get("other") == {"number": 9}
    assert sorted(channel._get("work")["number"] for _ in range(3)) == [0, 1, 2]
    with pytest.raises(Empty):
        channel._get("work")


def test_a_message_that_cannot_be_written_leaves_nothing(
    channel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ChannelError, match="No space left"):
        channel._put("work", {"number": 1})
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
