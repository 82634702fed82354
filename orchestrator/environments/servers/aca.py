"""A server in an Azure Container Apps sandbox, by openenv's own provider.

The provider needs openenv and Azure's library, which no worker loads: it lives in a child process
(`aca_child`), which makes the sandbox, tells its address, and deletes the sandbox when its standard
input ends, as it does when the worker dies. Egress is always denied unless a host is allowed, and
the public port is always asked for explicitly. The address is a secret that opens the sandbox to
whoever has it, so no message holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from orchestrator.environments.actions import forget_schema
from orchestrator.environments.connection import keep_secret
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.servers.process import base_environment, has_ended
from orchestrator.environments.servers.readiness import until_ready
from orchestrator.environments.servers.spec import START_TIMEOUT_S

CREATE_TIMEOUT_S = 300
"""What Azure may take to make a sandbox."""
STOP_TIMEOUT_S = 60.0
LOG_TAIL_CHARS = 2000
_POLL_S = 0.2
_IDENTITY = ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET")


@dataclass(frozen=True)
class AcaSpec:
    """A disk of Azure to run."""

    name: str
    image: str
    """`disk:NAME` or `disk-id:ID`."""
    capacity: int
    cpu: str
    """Thousandths of a processor, like `1000m`."""
    memory: str
    """Like `2048Mi`."""
    allowed_hosts: tuple[str, ...] = ()
    command: str = ""
    """A shell's, run in the background; empty where the disk starts its server itself."""
    folder: str = ""
    """The command's."""
    env: Mapping[str, str] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)
    """subscription_id, resource_group, sandbox_group, region; else the worker's AZURE_… say it."""
    max_servers: int = 1
    is_single_use: bool = False
    probe: Mapping[str, Any] = field(default_factory=dict)
    adapter: str = ""
    """`module:name` of a stand-in for Azure's library; for tests. No source can name one."""

    is_ours = True

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def make(self, folder: Path) -> AcaServer:
        return AcaServer(self, folder)


class AcaServer:
    """One sandbox. See the module's text."""

    def __init__(self, spec: AcaSpec, folder: Path) -> None:
        self.spec = spec
        self.capacity = spec.capacity
        self.folder = folder
        self.log_path = folder / "server.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._base_url = ""

    @property
    def is_alive(self) -> bool:
        return self._child is not None and not has_ended(self._child)

    @property
    def base_url(self) -> str:
        if not self._base_url:
            raise ServerStartError(f"the sandbox of {self.spec.name} was not started")
        return self._base_url

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Make the sandbox. `image` and `port` are those of the specification."""
        if self.is_alive:
            return self.base_url
        self.stop_container()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        request = {
            **{name: value for name, value in asdict(self.spec).items() if name != "probe"},
            "env": {**self.spec.env, **(env_vars or {})},
            "create_timeout_s": CREATE_TIMEOUT_S,
        }
        with self.log_path.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.environments.servers.aca_child"],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._child = child
        try:
            answer = self._ask(child, request)
        except ServerStartError:
            self.stop_container()
            raise
        keep_secret(answer)
        self._base_url = answer
        forget_schema(answer)
        return answer

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Reset a first episode. `ServerStartError` without the address."""
        try:
            asyncio.run(until_ready(base_url, self.spec.probe, timeout_s, lambda: self.is_alive))
        except ServerStartError as exc:
            self.stop_container()
            raise ServerStartError(f"the sandbox of {self.spec.name} did not start: {exc}") from exc

    def stop_container(self) -> None:
        """Have the sandbox deleted. Safe to call twice."""
        child, self._child, self._base_url = self._child, None, ""
        if child is None:
            return
        if child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()
        if not has_ended(child, within_s=STOP_TIMEOUT_S):
            child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()

    def close(self) -> None:
        self.stop_container()

    def log_tail(self) -> str:
        """The end of what the child said of itself; the server's own output stays in Azure."""
        try:
            return self.log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        except FileNotFoundError:
            return ""

    def _ask(self, child: subprocess.Popen[bytes], request: Mapping[str, Any]) -> str:
        """The sandbox's address, once it is there."""
        if child.stdin is None or child.stdout is None:
            raise ServerStartError("no pipe to the provider")
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            raise ServerStartError(f"the provider did not start: {self.log_tail()}") from None
        line = _line(child.stdout, within_s=CREATE_TIMEOUT_S + 60)
        try:
            answer = json.loads(line)
        except ValueError:
            raise ServerStartError(
                f"the sandbox of {self.spec.name} was not made: {self.log_tail() or 'no answer'}"
            ) from None
        if "base_url" not in answer:
            raise ServerStartError(
                f"the sandbox of {self.spec.name} was not made: {answer.get('error')}"
            )
        return str(answer["base_url"])

    def __enter__(self) -> Self:
        self.wait_for_ready(self.start_container())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _line(pipe: Any, within_s: float) -> bytes:
    """The first line, empty if there is none in time or the pipe ends."""
    deadline_s = time.monotonic() + within_s
    read = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    while b"\n" not in read and (left_s := deadline_s - time.monotonic()) > 0:
        if poll.poll(left_s * 1000):
            chunk = os.read(pipe.fileno(), 65536)
            if not chunk:
                break
            read += chunk
    return bytes(read.partition(b"\n")[0])


def _environment() -> dict[str, str]:
    """The operator's Azure identity, and nothing else of this process's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("AZURE_")
        or name in _IDENTITY
        or name in ("HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
        or name.lower() in ("https_proxy", "http_proxy", "no_proxy")
    }
    return {**base_environment(), **kept}
