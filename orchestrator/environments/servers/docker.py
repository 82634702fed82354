"""A server in a container, with limits. `docker` is a child process: no library, no socket of ours.

The container runs in the foreground of its client, so what it prints is in the log and its end is
seen at once. What is enforced: memory without swap, processors, processes, a read-only root with a
small `/tmp` in memory, no capabilities, no new privileges, an unprivileged user, and the network:

- `none`: a network of its own that has no way out (`--internal`). A container without any network
  cannot publish a port, so it is reached by its address on that network, from this machine only.
  Services of this machine that listen on all addresses can be reached by it.
- `open`: the ordinary network, with the port published on 127.0.0.1 alone.
- `allow-list` is refused: Docker has no rule by name.

Containers whose worker is gone are removed when the next one starts, found by their label.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from orchestrator.environments.actions import forget_schema
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.servers.process import base_environment, has_ended, spawn
from orchestrator.environments.servers.readiness import until_ready
from orchestrator.environments.servers.spec import START_TIMEOUT_S

PORT = 8000
"""On which OpenEnv's images listen."""
COMMAND_TIMEOUT_S = 60.0
ADDRESS_TIMEOUT_S = 60.0
STOP_GRACE_S = 3
LOG_TAIL_CHARS = 2000
LABEL = "org.switchback"
_POLL_S = 0.1


@dataclass(frozen=True)
class DockerSpec:
    """An image to run."""

    name: str
    image: str
    """By digest or id: `prepare_image` gives it."""
    capacity: int
    memory_mb: int
    cpus: float
    processes: int
    disk_mb: int
    """Size of `/tmp`, which is in memory and counts as such."""
    network: str = "none"
    """`none` or `open`."""
    command: tuple[str, ...] = ()
    """Instead of the image's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "65534:65534"
    port: int = PORT
    max_servers: int = 1
    is_single_use: bool = False
    probe: Mapping[str, Any] = field(default_factory=dict)

    is_ours = True

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def make(self, folder: Path) -> DockerServer:
        return DockerServer(self, folder)


class DockerServer:
    """One container. See the module's text."""

    def __init__(self, spec: DockerSpec, folder: Path) -> None:
        self.spec = spec
        self.capacity = spec.capacity
        self.folder = folder
        self.log_path = folder / "server.log"
        self.container = ""
        """Its name while it runs."""
        self._client: subprocess.Popen[bytes] | None = None
        self._base_url = ""

    @property
    def is_alive(self) -> bool:
        return self._client is not None and not has_ended(self._client)

    @property
    def base_url(self) -> str:
        if not self._base_url:
            raise ServerStartError(f"the container of {self.spec.name} was not started")
        return self._base_url

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start it and find its address. `image` and `port` are those of the specification."""
        if self.is_alive:
            return self.base_url
        self.stop_container()
        remove_orphans()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.container = f"switchback-{self.spec.name}-{secrets.token_hex(4)}".lower()
        try:
            if self.spec.network == "none":
                docker("network", "create", "--internal", *_labels(), self.container)
            self._run({**self.spec.env, **(env_vars or {})})
            self._base_url = self._address()
        except ServerStartError as exc:
            tail = self.log_tail()
            self.stop_container()
            raise ServerStartError(
                f"the container of {self.spec.name} did not start: {exc} "
                f"It printed: {tail or 'nothing'}"
            ) from exc
        forget_schema(self._base_url)
        return self._base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Reset a first episode. `ServerStartError` with the end of the log."""
        try:
            asyncio.run(until_ready(base_url, self.spec.probe, timeout_s, lambda: self.is_alive))
        except ServerStartError as exc:
            tail = self.log_tail()
            self.stop_container()
            raise ServerStartError(
                f"the container of {self.spec.name} did not start: {exc} "
                f"It printed: {tail or 'nothing'}"
            ) from exc

    def stop_container(self) -> None:
        """Stop and remove container and network. Safe to call twice, and for one that is gone."""
        name, self.container, self._base_url = self.container, "", ""
        client, self._client = self._client, None
        if name:
            with contextlib.suppress(ServerStartError):
                docker("stop", "-t", str(STOP_GRACE_S), name)
            with contextlib.suppress(ServerStartError):
                docker("rm", "--force", name)
        if client is not None:
            if not has_ended(client, within_s=STOP_GRACE_S):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(client.pid, signal.SIGKILL)
            client.wait()
        if name and self.spec.network == "none":
            with contextlib.suppress(ServerStartError):
                docker("network", "rm", name)
        (self.folder / "env").unlink(missing_ok=True)

    def close(self) -> None:
        self.stop_container()

    def log_tail(self) -> str:
        """The end of what the container printed; foreign text."""
        try:
            return self.log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        except FileNotFoundError:
            return ""

    def _run(self, env: Mapping[str, str]) -> None:
        # In a file: a command line can be read by other users of the machine.
        env_path = self.folder / "env"
        env_path.unlink(missing_ok=True)
        with os.fdopen(os.open(env_path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in env.items())
        launcher = [sys.executable, "-I", str(Path(__file__).parents[1] / "launch.py")]
        arguments = run_arguments(self.spec, self.container, env_path)
        with self.log_path.open("ab") as log:
            self._client = spawn(
                [*launcher, str(os.getpid()), "--", program(), *arguments],
                client_environment(),
                log.fileno(),
            )

    def _address(self) -> str:
        """Where the container listens, as soon as Docker knows it."""
        if self.spec.network == "none":
            form = f'{{{{(index .NetworkSettings.Networks "{self.container}").IPAddress}}}}'
            question: tuple[str, ...] = ("inspect", "--format", form, self.container)
        else:
            question = ("port", self.container, f"{self.spec.port}/tcp")
        deadline_s = time.monotonic() + ADDRESS_TIMEOUT_S
        said = ""
        while time.monotonic() < deadline_s:
            if self._client is None or has_ended(self._client, within_s=_POLL_S):
                raise ServerStartError("it ended at once.")
            try:
                said = docker(*question).strip()
            except ServerStartError as exc:
                said = str(exc)  # not created yet
                continue
            if self.spec.network == "none" and said:
                return f"http://{said}:{self.spec.port}"
            for line in said.splitlines():
                if line.startswith("127.0.0.1:"):
                    return f"http://{line}"
        raise ServerStartError(f"no address within {ADDRESS_TIMEOUT_S:g} s ({said}).")

    def __enter__(self) -> Self:
        self.wait_for_ready(self.start_container())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def run_arguments(spec: DockerSpec, container: str, env_path: Path) -> list[str]:
    """The arguments of `docker` that start the container."""
    if spec.network == "none":
        network = ["--network", container]
    else:
        network = ["--publish", f"127.0.0.1::{spec.port}"]
    return [
        *("run", "--rm", "--init", "--pull", "never", "--name", container, *_labels()),
        *("--memory", f"{spec.memory_mb}m", "--memory-swap", f"{spec.memory_mb}m"),
        *("--cpus", f"{spec.cpus:g}", "--pids-limit", str(spec.processes)),
        *("--read-only", "--tmpfs", f"/tmp:rw,nosuid,nodev,size={spec.disk_mb}m,mode=1777"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", spec.user),
        *("--log-driver", "none", "--env-file", str(env_path), "--env", "HOME=/tmp"),
        *network,
        spec.image,
        *spec.command,
    ]


def docker(*arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """What `docker` printed. `ServerStartError` with its own words if it failed."""
    try:
        done = subprocess.run(
            [program(), *arguments],
            env=client_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise ServerStartError(
            f"docker {arguments[0]} did not answer within {timeout_s:g} s."
        ) from exc
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise ServerStartError(f"docker {arguments[0]}: {said[-500:] or 'failed'}")
    return done.stdout


def remove_orphans() -> None:
    """Containers and networks of workers of this host that are gone."""
    mine = ("--filter", f"label={LABEL}.host={socket.gethostname()}")
    form = f'{{{{.Label "{LABEL}.worker"}}}}'
    for line in docker("ps", "--all", *mine, "--format", f"{{{{.Names}}}} {form}").splitlines():
        name, _, worker = line.partition(" ")
        if worker and not _lives(worker):
            with contextlib.suppress(ServerStartError):
                docker("rm", "--force", name)
    for line in docker("network", "ls", *mine, "--format", f"{{{{.Name}}}} {form}").splitlines():
        name, _, worker = line.partition(" ")
        if worker and not _lives(worker):
            with contextlib.suppress(ServerStartError):
                docker("network", "rm", name)


def _labels() -> Sequence[str]:
    return (
        *("--label", f"{LABEL}.host={socket.gethostname()}"),
        *("--label", f"{LABEL}.worker={_worker(os.getpid())}"),
    )


def _worker(pid: int) -> str:
    """A process, told from a later one with the same number by its start."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return f"{pid}-{stat.rpartition(')')[2].split()[19]}"


def _lives(worker: str) -> bool:
    pid = worker.partition("-")[0]
    try:
        return pid.isdigit() and _worker(int(pid)) == worker
    except (FileNotFoundError, ProcessLookupError):
        return False


def program() -> str:
    program = shutil.which("docker")
    if program is None:
        raise ServerStartError(
            "docker is not on the PATH of this worker. Install Docker, or register the environment "
            "as a package."
        )
    return program


def client_environment() -> dict[str, str]:
    """Where Docker is; none of this process's secrets."""
    kept = ("HOME", "XDG_RUNTIME_DIR")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    dockers = {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    return {"PATH": base_environment()["PATH"], **found, **dockers}
