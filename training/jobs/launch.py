"""Starts the ranks of a job by torchrun's agent, and says which of them ended it, and how.

`python -m training.jobs.launch --job DIR --processes N`. When one rank ends, the agent ends the
others, and what they say by then is that a peer is gone. So the reason of the attempt is looked for
here: a rank that was killed, else the rank that failed first. It goes where the reason of a single
process goes, `failed.json`.

Exit codes are those of `training.jobs.runner`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.jobs.client import EXIT_BUSY, EXIT_STOPPED
from training.jobs.folder import JobFolder, read_json, write_json
from training.jobs.process import die_with

_CONSEQUENCES = (signal.SIGTERM, signal.SIGABRT)
"""How a rank ends because another one did: the agent ended it, or its communicator gave up."""


def root_cause(
    world: int, exits: Mapping[int, int], records: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Kind and reason of what ended the attempt; None where nothing tells.

    `exits`: exit code by rank, negative for a signal. `records`: what ranks wrote before they
    ended, each with the time `at`; a rank whose peer is gone writes later than that one.
    """
    for rank, code in sorted(exits.items()):
        if code < 0 and -code not in _CONSEQUENCES:
            return _killed(rank, world, -code)
    told = sorted(records.items(), key=lambda each: (float(each[1].get("at", 0.0)), each[0]))
    if told:
        rank, record = told[0]
        where = f"rank {rank} of {world}: " if rank else ""
        return {**record, "reason": f"{where}{record['reason']}"}
    for rank, code in sorted(exits.items()):
        if code < 0:
            return _killed(rank, world, -code)
    for rank, code in sorted(exits.items()):
        return {"kind": f"exit {code}", "reason": f"rank {rank} of {world} ended with code {code}"}
    return None


def _killed(rank: int, world: int, number: int) -> dict[str, Any]:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = ", as happens when memory runs out" if number == signal.SIGKILL else ""
    return {
        "kind": f"killed by {name}",
        "reason": f"rank {rank} of {world} was killed by {name}{hint}",
    }


def record_file(job: JobFolder, rank: int) -> Path:
    """Where a rank says why it failed."""
    return job.failed_file if rank == 0 else job.path / f"failed-rank-{rank}.json"


def launch(job: JobFolder, processes: int, arguments: Sequence[str]) -> int:
    """Run the ranks until they end; returns the exit code."""
    # Heavy, and not needed to tell who ended an attempt.
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for rank in range(processes):
        record_file(job, rank).unlink(missing_ok=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,  # whoever supervises decides how often to try
    )
    try:
        elastic_launch(config, sys.executable)("-m", "training.jobs.runner", *arguments)
    except SignalException:
        return EXIT_STOPPED
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        return _tell(job, processes, exits)
    return 0


def _tell(job: JobFolder, world: int, exits: Mapping[int, int]) -> int:
    if exits.get(0) == EXIT_BUSY:
        return EXIT_BUSY  # the folder is another runner's, and so is what it says
    found = {rank: read_json(record_file(job, rank)) for rank in range(world)}
    records = {rank: record for rank, record in found.items() if record is not None}
    if not records and set(exits.values()) == {EXIT_STOPPED}:
        return EXIT_STOPPED
    cause = root_cause(world, exits, records)
    if cause is not None:
        write_json(job.failed_file, cause)
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.jobs.launch", description=__doc__)
    parser.add_argument("--job", type=Path, required=True, help="job folder with manifest.json")
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--parent", type=int, help="process id to die with")
    options = parser.parse_args(argv)
    arguments = ["--job", str(options.job)]
    if options.parent is not None:
        die_with(options.parent)
        arguments += ["--parent", str(options.parent)]
    # A machine whose own name does not resolve still has a loopback device; ranks are on one host.
    if Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with contextlib.suppress(KeyboardInterrupt):
        return launch(JobFolder(options.job.resolve()), options.processes, arguments)
    return EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
