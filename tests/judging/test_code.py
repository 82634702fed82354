"""Authors' functions in the real sandbox: right ones answer, wrong ones are ended and told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.judging.code import CodePool
from rubrics.errors import CriterionFailed
from rubrics.types import CodeRequest, CodeResult
from tests.environments.conftest import needs_bubblewrap

pytestmark = needs_bubblewrap
TRACE = {"steps": [{"command": "ls"}], "answer": "42"}


@pytest.fixture(scope="module")
def pool() -> Iterator[CodePool]:
    pool = CodePool(wall_s=1.0)
    yield pool
    pool.close()


def run(pool: CodePool, body: str, trace: dict[str, Any] | None = None) -> CodeResult:
    source = "def criterion(trace):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return asyncio.run(pool.run(CodeRequest(source, "criterion", trace or TRACE)))


def test_a_function_reads_the_trace_and_may_print(pool: CodePool) -> None:
    result = run(pool, "print('looking')\nreturn {'value': len(trace['steps']) / 2}")
    assert result == CodeResult({"value": 0.5}, "looking\n")


def test_calls_leave_nothing_behind(pool: CodePool) -> None:
    body = "import math\nmath.seen = getattr(math, 'seen', 0) + 1\nreturn math.seen"
    assert [run(pool, body).value for _ in range(3)] == [1, 1, 1]


ENDED = [
    ("while True: pass", "took more than 1 s"),
    ("import time\ntime.sleep(60)", "took more than 1 s"),
    (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(1)",
        "more than",
    ),
    ("import os\nos.fork()", "start a process or a thread"),
    ("import subprocess\nsubprocess.run(['ls'])", "start a process or a thread"),
    ("import threading\nthreading.Thread(target=print).start()", "thread"),
    ("return len(bytearray(2 << 30))", "memory"),
    ("x = []\nwhile True: x.append(bytes(200_000_000))", "memory"),
    ("open('/tmp/x', 'w').write('y')", "wrote a file"),
    ("open('/etc/passwd2', 'w')", "OSError"),
    ("import os\nos._exit(3)", "status 3"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    ("raise SystemExit('bye')", "SystemExit: bye"),
    ("return trace['nothing']", "line 2: KeyError"),
    ("return 'x' * (3 << 20)", "more than 1 MiB"),
    ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", "took|SIGSEGV|memory"),
    ("import socket\nsocket.create_connection(('1.1.1.1', 80), 1)", "OSError"),
]


@pytest.mark.parametrize(("body", "why"), ENDED)
def test_what_a_criterion_must_not_do_ends_it_with_the_reason(
    pool: CodePool, body: str, why: str
) -> None:
    with pytest.raises(CriterionFailed, match=why):
        run(pool, body)
    assert run(pool, "return 1").value == 1


def test_nothing_of_this_process_is_visible(
    pool: CodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBACK_SECRET_KEY", "for nobody")
    seen = run(pool, "import os\nreturn [sorted(os.environ), os.path.exists('/work'), os.getuid()]")
    environ, has_work, uid = seen.value
    assert "SWITCHBACK_SECRET_KEY" not in environ
    assert not has_work
    assert uid == 65534


def test_one_that_loops_does_not_hold_up_its_neighbours(pool: CodePool) -> None:
    async def both() -> float:
        loop = pool.run(CodeRequest("def f(t):\n    while True: pass", "f", {}))
        slow = asyncio.create_task(loop)
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        await pool.run(CodeRequest("def f(t): return 1", "f", {}))
        took = time.monotonic() - begun
        with pytest.raises(CriterionFailed):
            await slow
        return took

    assert asyncio.run(both()) < 0.8


def test_a_server_that_was_killed_is_started_again(pool: CodePool) -> None:
    assert run(pool, "return 1").value == 1
    process = pool._process
    assert isinstance(process, subprocess.Popen)
    os.kill(process.pid, signal.SIGKILL)
    assert run(pool, "return 2").value == 2


def test_many_calls_at_once(pool: CodePool) -> None:
    async def all_of_them() -> list[Any]:
        request = CodeRequest("def f(t): return len(t['answer'])", "f", TRACE)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(pool.run(request)) for _ in range(200)]
        return [task.result().value for task in tasks]

    assert asyncio.run(all_of_them()) == [2] * 200


def test_a_large_trace_is_handed_over(pool: CodePool) -> None:
    trace = {"steps": [{"output": "x" * 100_000}] * 100}
    body = "return sum(len(s['output']) for s in trace['steps'])"
    assert run(pool, body, trace).value == 10_000_000
