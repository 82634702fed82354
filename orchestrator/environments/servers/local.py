"""A server as a child process.

It runs in a process group of its own, with an explicit environment (never this process's, which
holds secrets), listening on a UNIX socket in its private folder. It dies with this process. Ready
means that an episode was reset, not that `/health` answers; while waiting, the process is watched,
so that a command that fails at once is told at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from orchestrator.environments.actions import forget_schema
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.sandbox.service import END_MARK
from orchestrator.environments.servers.process import base_environment, has_ended, spawn
from orchestrator.environments.servers.readiness import until_ready
from orchestrator.environments.servers.spec import START_TIMEOUT_S

STOP_GRACE_S = 3.0
LOG_TAIL_CHARS = 2000
LAST_WORDS_S = 0.5
"""For the sandbox to notice that its server has ended."""
MAX_SOCKET_PATH = 100
"""The kernel takes 107 bytes; a longer path moves to the temporary folder."""


@dataclass(frozen=True)
class LocalSpec:
    """A command to run as a child process."""

    name: str
    """Of the environment; names the server's folder."""
    command: tuple[str, ...]
    """`{socket}` becomes the path to listen on, `{work}` a folder that is removed at the end."""
    capacity: int
    """Episodes at a time."""
    probe: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the reset that proves readiness."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables; the same placeholders."""
    max_servers: int = 1
    """Side by side on one machine, while rollouts wait."""
    is_single_use: bool = False
    """Every episode gets a server, and with it a work folder, of its own."""

    is_ours = True

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def make(self, folder: Path) -> LocalServer:
        return LocalServer(self, folder)


class LocalServer:
    """One child process. See the module's text."""

    def __init__(self, spec: LocalSpec, folder: Path) -> None:
        self.spec = spec
        self.capacity = 1 if spec.is_single_use else spec.capacity
        self.folder = folder
        self.log_path = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_folder: Path | None = None
        self._work: Path | None = None
        self._socket: Path | None = None
        self._log_begins_at = 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None and not has_ended(self._process)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def base_url(self) -> str:
        if self._socket is None:
            raise ServerStartError(f"the server of {self.spec.name} was not started")
        return f"unix://{self._socket}"

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start the process; does not wait. `image` and `port` have no meaning here."""
        if self.is_alive:
            return self.base_url
        self.stop_container()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = self._socket_path()
        environ = {**base_environment(), **self.spec.env, **(env_vars or {})}
        names = {"{socket}": str(self._socket)}
        if any("{work}" in text for text in (*self.spec.command, *environ.values())):
            self._work = Path(tempfile.mkdtemp(prefix="switchback-server-"))
            names["{work}"] = str(self._work)
        launcher = [sys.executable, "-I", str(Path(__file__).parents[1].joinpath("launch.py"))]
        served = [_filled(part, names) for part in self.spec.command]
        with self.log_path.open("ab") as log:
            self._log_begins_at = log.seek(0, os.SEEK_END)
            self._process = spawn(
                [*launcher, str(os.getpid()), "--", *served],
                {name: _filled(value, names) for name, value in environ.items()},
                log.fileno(),
            )
        forget_schema(self.base_url)
        return self.base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Reset a first episode. `ServerStartError` with the end of the log."""
        try:
            asyncio.run(until_ready(base_url, self.spec.probe, timeout_s, lambda: self.is_alive))
        except ServerStartError as exc:
            ended = ""
            if self._process is not None and has_ended(self._process):
                ended = f" It ended with status {self._process.wait()}."
            self.stop_container()
            raise ServerStartError(
                f"The environment server of {self.spec.name} did not start: {exc}{ended} "
                f"It printed: {self.log_tail() or 'nothing'}"
            ) from exc

    def stop_container(self) -> None:
        """End the whole process group, politely first; remove socket and work folder."""
        process, self._process = self._process, None
        if process is not None:
            # The leader is reaped last, so that its number cannot belong to someone else; children
            # that outlived it are in its group still.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                has_ended(process, within_s=STOP_GRACE_S)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        for folder in (self._socket_folder, self._work):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        self._socket_folder = self._work = None

    def close(self) -> None:
        self.stop_container()

    def log_tail(self) -> str:
        """The end of what the server printed; foreign text."""
        try:
            return self.log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        except FileNotFoundError:
            return ""

    def last_words(self) -> str:
        """What the sandbox wrote of the end of this process: its status and the limit it met."""
        process = self._process
        if process is None or not has_ended(process, within_s=LAST_WORDS_S):
            return ""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begins_at, size - LOG_TAIL_CHARS))
            for line in reversed(log.read().decode(errors="replace").splitlines()):
                if line.startswith(END_MARK):
                    return f"The server ended {line.removeprefix(END_MARK).strip()}."
        return ""

    def _socket_path(self) -> Path:
        path = self.folder.resolve() / f"{os.getpid()}.sock"
        for left in path.parent.glob("*.sock"):
            if not Path("/proc", left.stem).exists():
                left.unlink(missing_ok=True)
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="switchback-"))
            path = self._socket_folder / "s.sock"
        path.unlink(missing_ok=True)
        return path

    def __enter__(self) -> Self:
        self.wait_for_ready(self.start_container())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _filled(text: str, names: Mapping[str, str]) -> str:
    for placeholder, value in names.items():
        text = text.replace(placeholder, value)
    return text
