"""Ends what a benchmark has started when the benchmark is killed: figures of others depend on it.

A child asks the kernel to be killed with its parent, by the launcher of environment servers. What a
package starts outside of this process's family, such as PostgreSQL, has a guard instead. Elsewhere
than on Linux neither exists, and a killed benchmark leaves its processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LAUNCHER = Path(__file__).resolve().parent.parent / "orchestrator/environments/launch.py"

_GUARD = """
import os, signal, sys
watched = [os.pidfd_open(int(pid)) for pid in sys.argv[1:]]
print("ready", flush=True)
if not sys.stdin.buffer.read():  # the end of the pipe, and no word before it
    for process in watched:
        try:
            signal.pidfd_send_signal(process, signal.SIGINT)
        except ProcessLookupError:
            pass
"""


def tied(command: Sequence[str]) -> list[str]:
    """The command that starts `command` as a process which ends with this one.

    The kernel looks at the thread that starts it: one that ends before it takes it with it. Costs
    some 15 ms once.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", str(_LAUNCHER), str(os.getpid()), "--", *command]


@contextmanager
def guarded(*pids: int) -> Iterator[None]:
    """Servers that end by SIGINT if this process dies inside; on leaving they are the caller's."""
    if sys.platform != "linux":
        yield
        return
    # A session of its own: Ctrl-C in the terminal is for the benchmark, which then cleans up.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        if guard.stdout.readline() != b"ready\n":
            raise RuntimeError(f"one of the processes {pids} cannot be watched")
        try:
            yield
        finally:
            guard.stdin.write(b"done")
            guard.stdin.close()
