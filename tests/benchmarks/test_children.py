"""What benchmarks start ends with them, however they end."""

from __future__ import annotations

import ast
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.children import guarded
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' prctl and pidfd")

PARENT = """
import subprocess, sys
from benchmarks.children import guarded, tied
forever = [sys.executable, "-c", "import sys; sys.stdin.read()"]  # until the pipe below is closed
hold = {"stdin": int(sys.argv[1]), "stdout": subprocess.DEVNULL, "start_new_session": True}
child = subprocess.Popen(tied(forever), **hold)
server = subprocess.Popen(forever, **hold)
with guarded(server.pid):
    print(child.pid, server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def pipe() -> Iterator[int]:
    """Its reading end. What is left over ends when the test does."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def has_ended(process: int) -> bool:
    """Of a pidfd; waits for it."""
    return bool(select.select([process], [], [], PATIENCE_S)[0])


@linux
def test_a_killed_benchmark_takes_along_what_it_started(pipe: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(pipe)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[pipe],
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    child, server = (os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split())
    try:
        assert not select.select([child, server], [], [], 0)[0], "both are at work"

        parent.kill()
        parent.wait()

        assert has_ended(child), "the kernel has killed the child"
        assert has_ended(server), "the guard has ended the server"
    finally:
        os.close(child)
        os.close(server)
        parent.stdin.close()
        parent.stdout.close()


@linux
def test_what_is_guarded_goes_on_when_the_benchmark_has_ended_in_order() -> None:
    forever = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(forever, stdin=subprocess.PIPE) as server:
        with guarded(server.pid):
            pass

        assert server.poll() is None
        server.send_signal(signal.SIGKILL)


@linux
def test_a_server_that_is_not_there_is_told_at_once() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    with pytest.raises(RuntimeError, match="cannot be watched"), guarded(ended.pid):
        pass


STARTS = {"Popen", "run", "call", "check_call", "check_output"}


def test_every_process_of_a_benchmark_is_tied_to_it() -> None:
    """By its text: one that is forgotten is seen on the day that somebody interrupts it."""
    starts = []
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("subprocess"), attr=name), args=[first, *_]
                ) if name in STARTS:
                    is_tied = ast.unparse(first).startswith("tied(")
                    starts.append((f"{path.relative_to(ROOT)}:{node.lineno}", is_tied))

    untied = [place for place, is_tied in starts if not is_tied]
    assert untied == ["benchmarks/children.py:" + untied[0].partition(":")[2]], "the guard alone"
    assert len(starts) > 15
