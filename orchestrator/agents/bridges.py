"""Bridges to Tinker-protocol servers: processes of this one, one for each server, base and key.

A bridge (`training.tinker.bridge`) has the API of our model server on loopback and needs torch and
the SDK, so it is a process of the trainer's interpreter. It is started when a run first needs it,
ends with the process that started it, and is started again on its port if it dies: requests that
meet it away are repeated by their client, which registers the weights anew.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import structlog
from django.conf import settings

from orchestrator.agents.errors import BridgeDown
from orchestrator.agents.models import ModelEndpoint
from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobError
from orchestrator.projects.secrets import decrypt

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
"""A cold import of torch on a busy machine takes half a minute."""
LOOK_S = 0.2
MAX_STARTS = 5
"""In a row without an answer between."""
EXIT_REFUSED = 1
POINTER_FILE = "tinker.json"
KEY_VARIABLE = "TINKER_API_KEY"

log = structlog.get_logger(__name__)


@dataclass
class Bridge:
    """One process, and what it is for."""

    command: tuple[str, ...]
    port: int
    api_key: str = field(repr=False)
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    log_file: Path | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def start(self) -> None:
        self.starts += 1
        environ = {**os.environ, KEY_VARIABLE: self.api_key, "TINKER_TELEMETRY": "0"}
        assert self.log_file is not None
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=self._keep, args=(self.process,), daemon=True).start()

    def _keep(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for its end, and starts it again if it was not asked to."""
        code = process.wait()
        with _lock:
            if self.process is not process:
                return
            if code == EXIT_REFUSED:
                self.starts = MAX_STARTS  # it has said why, and would again
            if self.starts >= MAX_STARTS:
                return
            log.warning("bridge ended", code=code, port=self.port)
            self.start()

    def last_words(self) -> str:
        try:
            assert self.log_file is not None
            lines = self.log_file.read_text(errors="replace").splitlines()
        except OSError:
            return "no words"
        return " | ".join(lines[-2:]) or "no words"


_lock = threading.RLock()
_bridges: dict[str, Bridge] = {}
_at_exit: list[bool] = []


def bridge_to(model: ModelEndpoint) -> str:
    """Address of the bridge to a Tinker endpoint's server; waits until it answers.

    Raises BridgeDown with its last words, SecretUnreadable.
    """
    key = decrypt(model.secret)
    command = (
        *(sys.executable, "-m", "training.tinker.bridge"),
        *("--base-url", model.base_url),
        *("--model", base_of(model)),
        *("--tokenizer", model.tokenizer_path or str(settings.MODEL_DIR)),
    )
    name = hashlib.sha256(json.dumps([*command, key]).encode()).hexdigest()
    with _lock:
        bridge = _bridges.get(name)
        if bridge is None:
            if not _at_exit:
                _at_exit.append(True)
                atexit.register(close_bridges)
            port = _free_port()
            bridge = _bridges[name] = Bridge(
                (*command, "--port", str(port)),
                port,
                key,
                log_file=Path(settings.DATA_DIR) / "logs" / f"bridge-{name[:12]}.log",
            )
        if not bridge.is_alive():
            bridge.starts = 0
            bridge.start()
    _await(bridge, model)
    return bridge.url


def base_of(model: ModelEndpoint) -> str:
    """Name of the base on its server; a promoted checkpoint's endpoint has the name of that."""
    if not model.adapter_path:
        return model.model
    pointer = Path(model.adapter_path) / POINTER_FILE
    try:
        pointer = sharing.local(model.adapter_path) / POINTER_FILE
        return str(json.loads(pointer.read_text(encoding="utf-8"))["model"])
    except (OSError, ValueError, KeyError, BlobError) as error:
        raise BridgeDown(f"{model.name}: {pointer} cannot be read ({error}).") from error


def close_bridges() -> None:
    """Ends them all."""
    with _lock:
        bridges = list(_bridges.values())
        _bridges.clear()
        for bridge in bridges:
            process, bridge.process = bridge.process, None
            if process is not None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10.0)


def _await(bridge: Bridge, model: ModelEndpoint) -> None:
    pause, waited_s = threading.Event(), 0.0
    while not bridge.answers():
        with _lock:
            has_given_up = not bridge.is_alive() and bridge.starts >= MAX_STARTS
        if has_given_up or waited_s > START_S:
            raise BridgeDown(
                f"{model.name}: the bridge to {model.base_url} does not start: "
                f"{bridge.last_words()}"
            )
        pause.wait(LOOK_S)
        waited_s += LOOK_S
    bridge.starts = 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
