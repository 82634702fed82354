"""Python criteria: a warm interpreter in the sandbox for this process, a fork for each call.

The server is started at the first call and again when it has died; it ends with this process. Calls
of several threads and event loops share it. A call that finds it gone is repeated once: grading
has no effect outside.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import SandboxUnavailableError, ServerStartError
from orchestrator.environments.packages.installation import interpreter_paths
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import detect
from orchestrator.environments.sandbox.service import ServiceSpec, service_command
from orchestrator.environments.servers.process import base_environment, has_ended, spawn
from rubrics.errors import CriterionFailed
from rubrics.types import CodeRequest, CodeResult

WALL_S = 2.0
"""For one call, told in the reason when it strikes."""
ANSWER_S = 30.0
"""For one call with its wait in the queue of calls."""
START_S = 20.0
RESOURCES = Resources(memory_mb=2048, processes=64, disk_mb=8)
_PROGRAM = Path(__file__).with_name("code_server.py")
_INSIDE = "/criterion/code_server.py"
_LINE_BYTES = 4 * 2**20


class CodePool:
    """See the module's text."""

    def __init__(self, wall_s: float = WALL_S) -> None:
        self.wall_s = wall_s
        self._lock = threading.Lock()  # protects start and stop
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._owner = 0
        atexit.register(self.close)

    async def run(self, request: CodeRequest) -> CodeResult:
        """Raises CriterionFailed: the function raised, was ended, or there is no sandbox here."""
        try:
            line = json.dumps(
                {"source": request.source, "function": request.function, "trace": request.trace}
            )
        except (TypeError, ValueError) as exc:
            raise CriterionFailed(f"the trace cannot be handed to a function: {exc}") from exc
        for attempt in (1, 2):
            path = await asyncio.to_thread(self._ready)
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await _exchange(path, line.encode() + b"\n")
            except TimeoutError:
                raise CriterionFailed(f"no answer of the sandbox within {ANSWER_S:g} s") from None
            except (OSError, asyncio.IncompleteReadError, ValueError) as exc:
                if attempt == 2:
                    raise CriterionFailed(f"the sandbox of criteria went away: {exc}") from exc
                await asyncio.to_thread(self._give_up, path)
                continue
            return self._result(answer)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the server. Safe to call twice, and in a process that was forked from the owner."""
        with self._lock:
            self._stop()

    # --- the server ---------------------------------------------------------------------------

    def _ready(self) -> Path:
        with self._lock:
            if self._owner != os.getpid():
                # Forked: the server belongs to the parent.
                self._process, self._folder, self._owner = None, None, os.getpid()
            if self._process is None or has_ended(self._process):
                self._stop()
                self._start()
            assert self._folder is not None
            return self._folder / "s.sock"

    def _give_up(self, path: Path) -> None:
        """After a call that the server behind `path` did not answer: the next one needs another.

        A killed process closes its sockets before it can be seen to have ended, so a server that
        refuses is not asked whether it lives. One that other calls have replaced is left alone.
        """
        with self._lock:
            if self._folder == path.parent and self._owner == os.getpid():
                self._stop()

    def _start(self) -> None:
        isolation = detect()
        if not isolation.available:
            raise CriterionFailed(str(SandboxUnavailableError(isolation.reason, isolation.hint)))
        folder = self._folder = Path(tempfile.mkdtemp(prefix="switchback-criteria-"))
        socket_path, log_path = folder / "s.sock", folder / "server.log"
        command = service_command(
            _service(self.wall_s), spec_path=folder / "service.json", decisions=folder / "egress"
        )
        argv = [part.replace("{socket}", str(socket_path)) for part in command]
        with log_path.open("ab") as log:
            try:
                self._process = spawn(argv, base_environment(), log.fileno())
            except ServerStartError as exc:
                raise CriterionFailed(f"the sandbox of criteria did not start: {exc}") from exc
        # The launcher listens before the interpreter inside runs: a call waits in its backlog.
        for _ in range(int(START_S / 0.02)):
            if socket_path.exists() or has_ended(self._process, within_s=0.02):
                break
        if not socket_path.exists():
            said = log_path.read_text(errors="replace")[-500:].strip()
            self._stop()
            raise CriterionFailed(f"the sandbox of criteria did not start: {said or 'no message'}")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.terminate()
            if not has_ended(process, within_s=3.0):
                process.kill()
            process.wait()
        if self._folder is not None and self._owner == os.getpid():
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _result(self, answer: dict[str, Any]) -> CodeResult:
        if "failed" in answer:
            why = str(answer["failed"])
            if why.startswith("took too long"):
                why = f"took more than {self.wall_s:g} s and was ended"
            printed = str(answer.get("printed", "")).strip()
            raise CriterionFailed(f"the function {why}" if why[0].islower() else why) from (
                RuntimeError(printed) if printed else None
            )
        return CodeResult(answer.get("value"), str(answer.get("printed", "")))


async def _exchange(path: Path, line: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=_LINE_BYTES)
    try:
        writer.write(line)
        await writer.drain()
        answer = json.loads(await reader.readuntil(b"\n"))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not isinstance(answer, dict):
        raise ValueError("not an answer")
    return answer


def _service(wall_s: float) -> ServiceSpec:
    python = os.path.realpath(sys.executable)
    return ServiceSpec(
        command=(python, "-I", _INSIDE, "--fd", "{fd}", "--wall", str(wall_s)),
        readable=(*((path, path) for path in interpreter_paths()), (str(_PROGRAM), _INSIDE)),
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
        resources=RESOURCES,
    )


@functools.cache
def code_pool() -> CodePool:
    """That of this process."""
    return CodePool()
