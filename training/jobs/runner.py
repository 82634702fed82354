"""The child process that trains: `python -m training.jobs.runner --job DIR`.

Holds the folder, runs the loop (`training.jobs.loop`), and records what ended the attempt. Under
torchrun the first rank does so, and the others follow its session.

Exit codes: 0 done, 1 failed (failed.json has the reason), 3 another runner holds the folder, 143
ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from training.errors import JobFolderBusy, TrainingError
from training.jobs.client import EXIT_BUSY, EXIT_STOPPED
from training.jobs.folder import JobFolder, write_json
from training.jobs.heartbeat import Heartbeat
from training.jobs.launch import record_file
from training.jobs.loop import Runner, Stopped
from training.jobs.process import die_with, end_orphan, locked, return_memory_at_once
from training.jobs.sessions import follow, is_rank, rank

log = logging.getLogger("training.runner")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.jobs.runner", description=__doc__)
    parser.add_argument("--job", type=Path, required=True, help="job folder with manifest.json")
    parser.add_argument("--parent", type=int, help="process id to die with")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if belongs_to := os.environ.get("SWITCHBACK_LOG_CONTEXT"):
        log.info("an attempt begins: %s", belongs_to)
    return_memory_at_once()
    job = JobFolder(options.job.resolve())
    if is_rank():
        die_with(os.getppid())
        if rank() != 0:
            return _follow(job)
    elif options.parent is not None:
        die_with(options.parent)
    try:
        with locked(job):
            return _attempt(job, options.parent if is_rank() else None)
    except JobFolderBusy as error:
        print(error, file=sys.stderr)
        return EXIT_BUSY


def _follow(job: JobFolder) -> int:
    """Any rank but the first: says what ended it where the launcher looks."""
    try:
        follow(job.manifest())
    except Exception as error:
        log.exception("rank %d failed", rank())
        write_json(record_file(job, rank()), _failure(error))
        return 1
    return 0


def _failure(error: Exception) -> dict[str, object]:
    name = "" if isinstance(error, TrainingError) else f"{type(error).__name__}: "
    return {"reason": f"{name}{error}", "kind": type(error).__name__, "at": time.time()}


def _attempt(job: JobFolder, supervisor: int | None) -> int:
    """Run under the lock; the outermost boundary, which records what ended the attempt.

    `supervisor`: a process that is not our parent, without which the attempt ends too.
    """
    if job.done_file.exists():
        return 0
    job.failed_file.unlink(missing_ok=True)
    heartbeat = Heartbeat(job.heartbeat_file, on_orphaned=end_orphan, supervisor=supervisor)
    heartbeat.start()
    stop = threading.Event()

    def on_term(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_term)
    try:
        runner = Runner(job, job.manifest(), heartbeat, stop)
        runner.run()
        runner.session.close()
    except Stopped:
        heartbeat.stop("stopped")
        return EXIT_STOPPED
    except Exception as error:
        failure = _failure(error)
        log.exception("the attempt failed")
        heartbeat.stop("failed")
        write_json(job.failed_file, failure)
        return 1
    heartbeat.stop("done")
    return 0


if __name__ == "__main__":
    code = main()
    if is_rank():
        # torch's own threads are not joined when the interpreter takes its libraries apart, which
        # on a busy machine ends a rank by abort, after everything is written.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
