"""Containers: what Docker is asked for, and what happens when it refuses.

`docker` is a program of the tests (`tests/doubles/docker.py`) that records what it was asked and
starts a real server; a real Docker is used nowhere here.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.episode import run_episode
from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.docker import DockerKind
from orchestrator.environments.packages.image import prepare_image
from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.servers.docker import DockerServer, remove_orphans
from tests.doubles.openenv_servers import DOUBLES

DIGEST = f"registry.test/fault@sha256:{'1' * 64}"
IMAGE_ID = f"sha256:{'2' * 64}"


class Docker:
    """The stand-in and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.state = folder
        for name in ("images", "registry"):
            (folder / name).mkdir(parents=True)

    def add(self, image: str, *, where: str = "images", **known: Any) -> None:
        content = {"id": IMAGE_ID, "digests": [DIGEST], "target": "fault_env", **known}
        path = self.state / where / f"{image.replace('/', '_').replace(':', '_')}.json"
        path.write_text(json.dumps(content))

    def calls(self, *start: str) -> list[list[str]]:
        lines = (self.state / "calls.jsonl").read_text().splitlines()
        return [call for line in lines if (call := json.loads(line))[: len(start)] == list(start)]

    def containers(self) -> list[str]:
        return [path.stem for path in self.state.glob("container-*.json")]

    def networks(self) -> list[str]:
        return [path.stem for path in self.state.glob("network-*.json")]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {DOUBLES / "docker.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "state"))
    return Docker(tmp_path / "state")


def serve(
    tmp_path: Path, source: dict[str, Any] | None = None, resources: Resources | None = None
) -> DockerServer:
    spec = DockerKind().server(
        name="v1",
        source={"image": "fault", "pinned": DIGEST, **(source or {})},
        resources=resources or Resources(slots=4),
        specs=[],
        data=tmp_path,
    )
    return spec.make(tmp_path / "server")


async def test_an_episode_runs_in_a_container_with_every_limit(
    docker: Docker, tmp_path: Path
) -> None:
    docker.add("fault")
    server = serve(tmp_path, {"env": {"FAULT_IGNORE_SEED": "1"}})
    try:
        server.start_container()
        await _ready(server)
        finish = {"op": "noop", "reward": 1.0, "done": True}
        result = await run_episode(server.base_url, lambda view: finish)
        assert result.reward == 1.0
        (asked,) = docker.calls("run")
        text = " ".join(asked)
        for limit in (
            "--memory 1024m --memory-swap 1024m",
            "--cpus 1",
            "--pids-limit 256",
            "--read-only",
            "--tmpfs /tmp:rw,nosuid,nodev,size=512m,mode=1777",
            "--cap-drop ALL",
            "--security-opt no-new-privileges",
            "--user 65534:65534",
            f"--network {server.container}",
            DIGEST,
        ):
            assert limit in text
        assert "--publish" not in asked
        assert "--privileged" not in asked
        (network,) = docker.calls("network", "create")
        assert "--internal" in network
        # Variables may be secrets: in a file for this user alone, on no command line.
        assert "FAULT_IGNORE_SEED" not in text
        assert (server.folder / "env").stat().st_mode & 0o777 == 0o600
    finally:
        server.close()
    assert docker.containers() == docker.networks() == []
    assert not (server.folder / "env").exists()
    assert not server.is_alive
    server.close()


def test_an_open_network_is_published_on_this_machine_alone(docker: Docker, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    docker.add("fault", free_port=port)
    server = serve(tmp_path, resources=Resources(network=Network(mode="open")))
    with server:
        assert server.base_url == f"http://127.0.0.1:{port}"
        (asked,) = docker.calls("run")
        assert asked[asked.index("--publish") + 1] == "127.0.0.1::8000"
        assert docker.networks() == []


def test_names_cannot_be_allowed_one_by_one(tmp_path: Path) -> None:
    resources = Resources(network=Network(mode="allow-list", allowed_hosts=("a.example.org",)))
    with pytest.raises(ServerStartError, match="choose network none or open"):
        serve(tmp_path, resources=resources)


def test_a_container_that_ends_at_once_is_told_with_its_words(
    docker: Docker, tmp_path: Path
) -> None:
    docker.add("fault", exit=3, say="no module named nowhere")
    server = serve(tmp_path)
    with pytest.raises(ServerStartError, match=r"ended at once.*no module named nowhere"):
        server.start_container()
    assert docker.networks() == []


def test_an_image_that_is_not_there_is_told(docker: Docker, tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="No such image"):
        serve(tmp_path).start_container()


def test_containers_of_a_worker_that_is_gone_are_removed(docker: Docker, tmp_path: Path) -> None:
    docker.add("fault")
    server = serve(tmp_path)
    with server:
        path = docker.state / f"container-{server.container}.json"
        stored = json.loads(path.read_text())
        assert stored["labels"]
        remove_orphans()
        assert docker.containers(), "a living worker's container stays"
        stored["labels"] = [
            "org.switchback.worker=1-0" if text.startswith("org.switchback.worker") else text
            for text in stored["labels"]
        ]
        path.write_text(json.dumps(stored))
        remove_orphans()
        assert docker.containers() == []


def test_an_image_is_pulled_once_and_named_by_its_digest(docker: Docker) -> None:
    docker.add("registry.test/fault:1", where="registry")
    steps: list[str] = []
    for _ in range(2):
        prepared = prepare_image(
            {"image": "registry.test/fault:1"}, report=steps.append, check=lambda: None
        )
        assert prepared.source["pinned"] == DIGEST
        assert prepared.source["image_id"] == IMAGE_ID
    assert len(docker.calls("pull")) == 1
    assert "Pulling registry.test/fault:1" in steps


def test_an_image_of_this_machine_alone_is_named_by_its_id(docker: Docker) -> None:
    docker.add("mine:latest", digests=[])
    prepared = prepare_image({"image": "mine:latest"}, report=print, check=lambda: None)
    assert prepared.source["pinned"] == IMAGE_ID


def test_a_refused_pull_is_told_in_dockers_words(docker: Docker) -> None:
    with pytest.raises(SourceError, match=r"image: nowhere:1 cannot be pulled.*access denied"):
        prepare_image({"image": "nowhere:1"}, report=print, check=lambda: None)


def test_a_machine_without_docker_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match=r"docker is not on the PATH.*Install Docker"):
        prepare_image({"image": "fault:1"}, report=print, check=lambda: None)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({}, "image"),
        ({"image": "--privileged"}, "image"),
        ({"image": "a b"}, "image"),
        ({"image": "a", "pinned": "--privileged"}, "pinned"),
        ({"image": "a", "user": "root"}, "user: root is not given"),
        ({"image": "a", "user": "0:5"}, "user: root is not given"),
        ({"image": "a", "port": 0}, "port"),
        ({"image": "a", "command": "python"}, "command"),
        ({"image": "a", "env": {"A B": "x"}}, "env: 'A B'"),
        ({"image": "a", "env": {"A": "x\nB=y"}}, "env: A: Docker takes no value of several"),
        ({"image": "a", "volumes": ["/:/host"]}, "volumes: unknown"),
    ],
)
def test_a_source_that_cannot_be_run_names_its_field(source: dict[str, Any], reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        DockerKind().check_source(source)


async def _ready(server: DockerServer) -> None:
    await asyncio.to_thread(server.wait_for_ready, server.base_url)
