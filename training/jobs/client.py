"""The supervising side of a training job: submit, start, watch, answer, stop. No torch here.

A supervisor owns one runner process at a time. It polls `status` and `pending_need`, answers needs
with `write_rows`, forwards new events by offset, and starts the runner again after a crash; the
runner continues from its last checkpoint. Nothing here decides how often to try.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from training.checkpoint import write_file
from training.errors import ConfigurationError, RowError
from training.jobs.events import read_events as read_events_file
from training.jobs.folder import (
    Evaluation,
    EvaluationNeed,
    JobFolder,
    Need,
    read_json,
    write_json,
)
from training.jobs.heartbeat import STALE_AFTER_S
from training.manifest import Manifest
from training.records import write_record
from training.rows import row_from_json

STOP_GRACE_S = 20.0
EXIT_BUSY = 3
EXIT_STOPPED = 143


class JobState(StrEnum):
    """What the files of a job say."""

    SUBMITTED = "submitted"
    """No runner has been here."""
    RUNNING = "running"
    """Alive and within the deadline of its phase."""
    HUNG = "hung"
    """Alive, but past the deadline of its phase."""
    DEAD = "dead"
    """The last heartbeat is stale; start it again."""
    STOPPED = "stopped"
    """Ended by SIGTERM; start it again to go on."""
    DONE = "done"
    """Finished; the adapter is there."""
    FAILED = "failed"
    """Ended by itself with a reason."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A snapshot of a job."""

    state: JobState
    step: int = 0
    phase: str = ""
    progress: int = 0
    pid: int | None = None
    deadline: float | None = None
    """Seconds since the epoch; of the phase."""
    reason: str = ""
    adapter: Path | None = None
    """The chosen adapter, when done."""
    adapter_sha256: str = ""
    chosen_step: int = 0
    """The step that it comes from."""
    kind: str = ""
    """Of a failure: the name of what was raised."""


def submit(folder: Path, manifest: Manifest) -> JobFolder:
    """Create a job folder; safe to call twice with the same manifest.

    Raises ConfigurationError if the folder belongs to another manifest.
    """
    job = JobFolder(folder)
    if job.manifest_file.exists():
        existing = job.manifest().sha256
        if existing != manifest.sha256:
            raise ConfigurationError(
                f"{folder} belongs to another manifest ({existing[:12]}); use another folder"
            )
        return job
    folder.mkdir(parents=True, exist_ok=True)
    write_json(job.manifest_file, manifest.to_json())
    return job


def start_runner(
    folder: Path,
    *,
    python: str = "",
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start the child process in a process group of its own; it dies with the calling thread.

    It runs under `python`, else under the interpreter that its manifest names, else under ours.
    `env` replaces the environment if given. Output goes to `log` (default: runner.log in the
    folder). Threads of torch are passive while waiting, so that they do not steal a core from the
    sampler.
    """
    repository = Path(__file__).resolve().parents[2]
    environment = dict(os.environ if env is None else env)
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Large tensors come from the system and go back to it: with glibc's growing thresholds the
    # trainer of the demo held 2.7 GB between passes instead of 1.4, in the same time.
    environment.setdefault("MALLOC_ARENA_MAX", "2")
    environment.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 20))
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(repository), *filter(None, [environment.get("PYTHONPATH")])]
    )
    execution = JobFolder(folder).manifest().execution
    command = [python or execution.interpreter or sys.executable, "-m"]
    if execution.backend == "torchrun":
        command += ["training.jobs.launch", "--processes", str(execution.processes)]
    else:
        command += ["training.jobs.runner"]
    command += ["--job", str(folder)]
    # What an earlier attempt left must not be taken for this one's; a runner that is still alive
    # writes its next heartbeat within two seconds, and keeps the lock.
    for leftover in (JobFolder(folder).failed_file, JobFolder(folder).heartbeat_file):
        leftover.unlink(missing_ok=True)
    with (log or folder / "runner.log").open("ab") as output:
        return subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def stop_runner(process: subprocess.Popen[bytes], *, grace_s: float = STOP_GRACE_S) -> int:
    """SIGTERM to the group, wait, SIGKILL; returns the exit code."""
    for number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=timeout_s)
    return process.wait(timeout=10.0)


def status(folder: Path, *, now: float | None = None) -> JobStatus:
    """What the files say; the process itself is not looked at."""
    job = JobFolder(folder)
    beat = read_json(job.heartbeat_file) or {}
    common: dict[str, Any] = {
        "step": int(beat.get("step", 0)),
        "phase": str(beat.get("phase", "")),
        "progress": int(beat.get("progress", 0)),
        "pid": beat.get("pid"),
        "deadline": beat.get("deadline"),
    }
    if done := read_json(job.done_file):
        return JobStatus(
            state=JobState.DONE,
            adapter=Path(done["adapter"]),
            adapter_sha256=str(done["sha256"]),
            chosen_step=int(done.get("step", done.get("steps", 0))),
            reason=str(done.get("reason", "")),
            **common,
        )
    if failed := read_json(job.failed_file):
        return JobStatus(
            state=JobState.FAILED,
            reason=str(failed["reason"]),
            kind=str(failed.get("kind", "")),
            **common,
        )
    if not beat:
        return JobStatus(state=JobState.SUBMITTED)
    if common["phase"] == "stopped":
        return JobStatus(state=JobState.STOPPED, **common)
    moment = time.time() if now is None else now
    age_s = moment - float(beat["at"])
    if age_s > STALE_AFTER_S:
        reason = f"no heartbeat for {age_s:.0f} s in phase {common['phase']}"
        return JobStatus(state=JobState.DEAD, reason=reason, **common)
    if common["deadline"] is not None and moment > common["deadline"]:
        reason = f"phase {common['phase']} of step {common['step']} is past its deadline"
        return JobStatus(state=JobState.HUNG, reason=reason, **common)
    return JobStatus(state=JobState.RUNNING, **common)


def pending_need(folder: Path) -> Need | None:
    """The request that waits for rows, or None."""
    job = JobFolder(folder)
    if job.done_file.exists():
        return None
    requests = sorted((folder / "need").glob("step-*.json"))
    if not requests:
        return None
    values = read_json(requests[-1])
    if values is None or job.rows_file(int(values["step"])).exists():
        return None
    return Need(
        step=int(values["step"]),
        weight_version=str(values["weight_version"]),
        adapter=values["adapter"],
    )


def write_rows(folder: Path, *, step: int, records: Sequence[Mapping[str, Any]]) -> None:
    """Answer a need: check every row and put the file in place atomically.

    Rows of a step are facts: if the file is there already it stays, and the new rows are ignored.
    Raises RowError if a row is malformed, or stamped with other weights than the job takes: those
    that were asked for, or older ones within the manifest's staleness.
    """
    job = JobFolder(folder)
    target = job.rows_file(step)
    if target.exists():
        return
    need = read_json(job.need_file(step))
    if need is None:
        raise RowError(f"step {step}: rows were not asked for")
    if not records:
        raise RowError(f"step {step}: no rows")
    asked = Need(step=step, weight_version=need["weight_version"], adapter=None)
    allowed = asked.versions(job.manifest().batch.max_staleness)
    for number, record in enumerate(records, start=1):
        row = row_from_json(record, where=f"step {step}, row {number}")
        if row.weight_version not in allowed:
            raise RowError(
                f"step {step}, row {number}: sampled by {row.weight_version!r}, "
                f"asked for {need['weight_version']!r}"
            )
    text = "".join(json.dumps(dict(record)) + "\n" for record in records)
    target.parent.mkdir(exist_ok=True)
    write_file(target, text.encode())


def pending_evaluation(folder: Path) -> EvaluationNeed | None:
    """The evaluation that the runner waits for, or None."""
    job = JobFolder(folder)
    if job.done_file.exists():
        return None
    requests = sorted((folder / "evaluate").glob("step-*.json"))
    values = read_json(requests[-1]) if requests else None
    if values is None or job.scores_file(int(values["step"])).exists():
        return None
    return EvaluationNeed(**values)


def write_pool(folder: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Keep rows that nothing is trained on; the first ones stay, so that the pool is fixed.

    At each evaluation the job reports how surprised its weights are at what the environment said in
    them. Raises RowError if one is malformed.
    """
    target = JobFolder(folder).pool_file
    if target.exists() or not records:
        return
    for number, record in enumerate(records, start=1):
        row_from_json(record, where=f"pool, row {number}")
    text = "".join(json.dumps(dict(record)) + "\n" for record in records)
    write_file(target, text.encode())


def write_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Answer an evaluation; the first answer stands.

    Raises RowError if it was not asked for, or if its mean is not a score.
    """
    job = JobFolder(folder)
    if not job.evaluate_file(evaluation.step).exists():
        raise RowError(f"step {evaluation.step}: an evaluation was not asked for")
    if evaluation.mean is not None and not 0.0 <= evaluation.mean <= 1.0:
        raise RowError(f"step {evaluation.step}: mean {evaluation.mean} is not between 0 and 1")
    target = job.scores_file(evaluation.step)
    if not target.exists():
        write_json(target, write_record(evaluation))


def read_events(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """New events since a byte offset, and the next offset."""
    return read_events_file(JobFolder(folder).events_file, offset)
