from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.model_server import Script, ScriptedModel
from tests.doubles.openenv_servers import FaultServer
from tests.runs.drive import good

MakeServer = Callable[..., FaultServer]
MakeModel = Callable[..., ScriptedModel]


@pytest.fixture(autouse=True)
def quick_beats(settings: Any) -> None:
    """A cancellation is heard at the next beat."""
    settings.JOB_BEAT_S = 0.1


@pytest.fixture(scope="session")
def fault_url() -> Iterator[str]:
    """Address of a fault environment that tests leave as they found it."""
    with _servers() as make:
        yield make().base_url


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """`make_server(env={…})`: a fault environment of this test's own, which it may kill."""
    with _servers() as make:
        yield make


class _servers:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="switchback-env-")
        self._made: list[FaultServer] = []

    def __enter__(self) -> MakeServer:
        return self.make

    def make(self, **options: Any) -> FaultServer:
        folder = Path(self._folder.name, str(len(self._made)))
        folder.mkdir()
        server = FaultServer(folder, **options)
        self._made.append(server)
        asyncio.run(server.start())
        return server

    def __exit__(self, *_: object) -> None:
        for server in self._made:
            server.stop()
        self._folder.cleanup()


@pytest.fixture
def make_model() -> Iterator[MakeModel]:
    """`make_model(script)`: a scripted model server that ends with the test."""
    made: list[ScriptedModel] = []

    def make(script: Script = good, **options: Any) -> ScriptedModel:
        model = ScriptedModel(script, **options)
        model.start()
        made.append(model)
        return model

    yield make
    for model in made:
        model.stop()
