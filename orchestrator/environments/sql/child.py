"""Talking to a runner process: one request, one answer, each within a time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

MAX_REPLY_BYTES = 64 * 2**20


class RunnerGoneError(RuntimeError):
    """The process ended, or was ended because it did not answer in time."""


class SqlError(ValueError):
    """What the database says about a request that is not an agent's statement."""


class Child:
    """A runner. Not safe for several threads at once; `stop` may come from any."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Whoever reads a server's log must not find an agent's statements there.
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C.UTF-8", **(env or {})},
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any], *, within_s: float) -> dict[str, Any]:
        """The answer. `SqlError` with the database's words; `RunnerGoneError`, after which only
        `stop` is of use.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            reply = json.loads(self._line(within_s))
        except OSError as exc:
            raise RunnerGoneError(f"the statement runner has ended: {exc}") from exc
        if not isinstance(reply, dict):
            raise RunnerGoneError("the statement runner answered something else than an object")
        if "failure" in reply:
            raise SqlError(reply["failure"])
        return reply

    def _line(self, within_s: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = time.monotonic() + within_s
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        parts: list[bytes] = []
        size = 0
        while not (parts and parts[-1].endswith(b"\n")):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise RunnerGoneError(f"no answer within {within_s:.0f} s")
            part = os.read(fd, 2**16)
            size += len(part)
            if not part or size > MAX_REPLY_BYTES:
                raise RunnerGoneError("ended by a limit on time or memory")
            parts.append(part)
        return b"".join(parts)

    def stop(self) -> None:
        """End the process. Safe to call twice."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not written cannot be flushed
                    pipe.close()
