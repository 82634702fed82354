"""Runs authors' functions, one child process for each call. Runs inside the sandbox.

`python code_server.py --fd N --wall S`: takes connections of the inherited UNIX socket. A
connection carries one request, {"source", "function", "trace"} as a line of JSON, and one answer,
{"value", "printed"} or {"failed": why}. The interpreter is warm, so a call costs a fork.

A child may use memory and processor time up to its limits; it can start no process or thread and
write no file. It is ended when its time is up. What ended it is told, for people. Standard library
alone, Python 3.11 and newer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import resource
import select
import signal
import socket
import time
import traceback
from dataclasses import dataclass

MAX_CHILDREN = 4
MEMORY_BYTES = 512 * 2**20
REQUEST_BYTES = 64 * 2**20
ANSWER_BYTES = 2**20
PRINTED_CHARS = 4000
NAMES = ("math", "re", "json", "datetime", "statistics", "string", "collections", "itertools",
         "functools", "difflib", "decimal", "fractions", "unicodedata")  # fmt: skip
"""Imported before the first call: what authors use costs them nothing."""


@dataclass
class Call:
    """A child at work."""

    pid: int
    end_fd: int
    """Readable when the child has ended."""
    answer_fd: int
    connection: socket.socket
    deadline: float
    answer: bytes = b""
    is_late: bool = False
    is_long: bool = False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--wall", type=float, required=True)
    args = parser.parse_args()
    for name in NAMES:
        __import__(name)
    listener = socket.socket(fileno=args.fd)
    listener.setblocking(False)
    calls: dict[int, Call] = {}
    while True:
        _serve_once(listener, calls, args.wall)


def _serve_once(listener: socket.socket, calls: dict[int, Call], wall_s: float) -> None:
    poll = select.poll()
    if len(calls) < MAX_CHILDREN:
        poll.register(listener, select.POLLIN)
    for call in calls.values():
        poll.register(call.answer_fd, select.POLLIN)
        poll.register(call.end_fd, select.POLLIN)
    soonest = min((call.deadline for call in calls.values()), default=math.inf)
    left_ms = None if math.isinf(soonest) else max(0.0, (soonest - time.monotonic()) * 1000 + 1)
    ready = {fd for fd, _ in poll.poll(left_ms)}
    for call in list(calls.values()):
        if call.answer_fd in ready:
            _take(call)
        if time.monotonic() >= call.deadline and not call.is_late:
            call.is_late = True
            os.kill(call.pid, signal.SIGKILL)
        if call.end_fd in ready:
            _finish(call)
            del calls[call.pid]
    if listener.fileno() in ready:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = listener.accept()
            call = _start(connection, listener, wall_s)
            calls[call.pid] = call


def _start(connection: socket.socket, listener: socket.socket, wall_s: float) -> Call:
    connection.setblocking(True)
    answer_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        listener.close()
        os.close(answer_fd)
        _child(connection, write_fd)
    os.close(write_fd)
    os.set_blocking(answer_fd, False)
    return Call(pid, os.pidfd_open(pid), answer_fd, connection, time.monotonic() + wall_s)


def _take(call: Call) -> None:
    try:
        chunk = os.read(call.answer_fd, 65536)
    except BlockingIOError:
        return
    call.answer += chunk
    if len(call.answer) > ANSWER_BYTES and not call.is_long:
        call.is_long = True
        os.kill(call.pid, signal.SIGKILL)


def _finish(call: Call) -> None:
    while not call.is_long:
        before = len(call.answer)
        _take(call)
        if len(call.answer) == before:
            break
    _, status = os.waitpid(call.pid, 0)
    os.close(call.end_fd)
    os.close(call.answer_fd)
    answer = call.answer
    if call.is_late:
        answer = _failed("took too long and was ended")
    elif call.is_long:
        answer = _failed(f"returned more than {ANSWER_BYTES // 2**20} MiB and was ended")
    elif not answer.endswith(b"\n"):
        answer = _failed(_words(os.waitstatus_to_exitcode(status)))
    with call.connection, contextlib.suppress(OSError):
        call.connection.settimeout(5)
        call.connection.sendall(answer)


def _words(exit_code: int) -> str:
    if exit_code == -signal.SIGXFSZ:
        return "wrote a file, which a criterion must not, and was ended"
    if exit_code == -signal.SIGXCPU:
        return "used too much processor time and was ended"
    if exit_code == -signal.SIGKILL:
        return "was ended for want of memory"
    if exit_code == -signal.SIGSYS:
        return "asked the system for what is not allowed and was ended"
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended the process with status {exit_code} and gave no verdict"


def _failed(why: str, printed: str = "") -> bytes:
    return json.dumps({"failed": why, "printed": printed}).encode() + b"\n"


# --- in the child --------------------------------------------------------------------------------


def _child(connection: socket.socket, answer_fd: int) -> None:
    printed = io.StringIO()
    try:
        request = json.loads(_line(connection))
        connection.close()
        _limit()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            value = _run(request)
        told = printed.getvalue()[:PRINTED_CHARS]
        answer = json.dumps({"value": value, "printed": told}, default=repr).encode() + b"\n"
    except MemoryError:
        answer = _failed(f"needed more than {MEMORY_BYTES // 2**20} MiB of memory")
    except BaseException as error:  # the author's code may raise anything, SystemExit too
        answer = _failed(_described(error), printed.getvalue()[:PRINTED_CHARS])
    with contextlib.suppress(OSError):
        while answer:
            answer = answer[os.write(answer_fd, answer) :]
    os._exit(0)


def _line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = connection.recv(1 << 18)
        if not chunk:
            raise EOFError("the request was not complete")
        received += chunk
        if len(received) > REQUEST_BYTES:
            raise ValueError(f"the trace is larger than {REQUEST_BYTES // 2**20} MiB")
    return bytes(received)


def _limit() -> None:
    os.setsid()
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 32),
    ):
        resource.setrlimit(limit, (value, value))
    # Python ignores it, and a write would only fail; it shall be told apart.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def _run(request: dict[str, object]) -> object:
    names: dict[str, object] = {"__name__": "criterion"}
    exec(compile(str(request["source"]), "criterion.py", "exec"), names)  # noqa: S102 (its purpose)
    function = names[str(request["function"])]
    if not callable(function):
        raise TypeError(f"{request['function']} is no function")
    return function(request["trace"])


def _described(error: BaseException) -> str:
    """The error with the author's own line."""
    if isinstance(error, BlockingIOError):
        return "tried to start a process or a thread, which a criterion must not"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "criterion.py"]
    where = f"line {frames[-1].lineno}: " if frames else ""
    return f"{where}{type(error).__name__}: {error}"[:1000]


if __name__ == "__main__":
    main()
