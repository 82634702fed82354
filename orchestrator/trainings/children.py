"""A process of the trainer's interpreter that does one thing and ends, under a job."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.jobs.registry import JobContext

ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.2


def run_child(
    command: Sequence[str], *, ctx: JobContext, limit_s: float, doing: str
) -> tuple[int, str]:
    """Exit code, and all that it printed.

    Raises TimeoutError after `limit_s`, and whatever ends the job (`JobContext.wait`); the process
    is killed then.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            waited_s = 0.0
            while process.poll() is None:
                if waited_s > limit_s:
                    raise TimeoutError(f"{doing} took more than {limit_s:g} s")
                ctx.wait(_POLL_S)
                waited_s += _POLL_S
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        return process.returncode, output.read().decode(errors="replace")
