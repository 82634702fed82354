"""A job over two processes: what ends one ends the attempt with its reason, and the job goes on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_runner import Supervise, supervisors, wait_until
from training.errors import ConfigurationError
from training.jobs import client
from training.jobs.client import JobState
from training.jobs.launch import root_cause
from training.manifest import BudgetPart, ExecutionPart, LoraPart, Manifest, ModelPart

__all__ = ["supervisors"]  # a fixture

PEER_GONE = {"reason": "RuntimeError: Connection closed by peer", "kind": "RuntimeError"}


@pytest.mark.parametrize(
    ("exits", "records", "kind", "words"),
    [
        # Killed, and what rank 0 says of it.
        ({0: 1, 1: -9}, {0: {**PEER_GONE, "at": 5.0}}, "killed by SIGKILL", "rank 1 of 2"),
        # The agent ended the other one.
        ({0: 143, 1: -11}, {}, "killed by SIGSEGV", "rank 1 of 2"),
        ({0: -9, 1: -15}, {}, "killed by SIGKILL", "rank 0 of 2"),
        # Both wrote; the first is the cause.
        (
            {0: 1, 1: 1},
            {0: {**PEER_GONE, "at": 5.0}, 1: {"reason": "no", "kind": "RowError", "at": 4.9}},
            "RowError",
            "rank 1 of 2: no",
        ),
        (
            {0: 1, 1: 1},
            {1: {**PEER_GONE, "at": 5.0}, 0: {"reason": "no", "kind": "RowError", "at": 4.9}},
            "RowError",
            "no",
        ),
        # A communicator that gives up aborts its process.
        (
            {0: 1, 1: -6},
            {0: {"reason": "no", "kind": "RowError", "at": 4.9}},
            "RowError",
            "no",
        ),
        ({0: -6, 1: -6}, {}, "killed by SIGABRT", "rank 0"),
        ({1: 7}, {}, "exit 7", "rank 1 of 2 ended with code 7"),
    ],
)
def test_the_rank_that_ended_an_attempt_is_named(
    exits: dict[int, int], records: dict[int, dict[str, Any]], kind: str, words: str
) -> None:
    found = root_cause(2, exits, records)
    assert found is not None
    assert found["kind"] == kind
    assert words in found["reason"]


def test_nothing_is_made_up_where_nothing_tells() -> None:
    assert root_cause(2, {}, {}) is None


@pytest.mark.parametrize(
    ("execution", "field"),
    [
        (ExecutionPart(backend="torchrun", processes=2, shard="fsdp"), "execution.shard"),
        (ExecutionPart(shard="fsdp2"), "execution.shard"),
        (ExecutionPart(processes=2), "execution.processes"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(execution: ExecutionPart, field: str) -> None:
    with pytest.raises(ConfigurationError, match=field):
        Manifest(model=ModelPart(folder="x"), execution=execution).validate()


def job_manifest(folder: Path, shard: str) -> Manifest:
    return Manifest(
        model=ModelPart(folder=str(folder)),
        lora=LoraPart(rank=4),
        execution=ExecutionPart(backend="torchrun", processes=2, shard=shard, threads=1),
        budgets=BudgetPart(steps=2),
    )


def rank_of(launcher: int, rank: int) -> int:
    """Process id of a rank."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for pid in children:
        if f"RANK={rank}" in Path(f"/proc/{pid}/environ").read_text().split("\0"):
            return int(pid)
    raise AssertionError(f"torchrun's agent {launcher} has no rank {rank}")


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["ddp", "fsdp2"])
def test_a_killed_rank_ends_the_attempt_with_its_reason_and_the_job_goes_on(
    tiny_folder: Path, tmp_path: Path, supervisors: Supervise, shard: str
) -> None:
    supervisor = supervisors(tmp_path / "job", job_manifest(tiny_folder, shard))
    first = supervisor.start()
    wait_until(lambda: client.pending_need(supervisor.folder) is not None)
    os.kill(rank_of(first.pid, 1), signal.SIGKILL)
    assert first.wait(timeout=300) == 1
    status = client.status(supervisor.folder)
    assert status.state is JobState.FAILED
    assert status.kind == "killed by SIGKILL"
    assert "rank 1 of 2 was killed by SIGKILL" in status.reason
    assert supervisor.run(supervisor.start()) == 0, supervisor.log()
    assert client.status(supervisor.folder).state is JobState.DONE
    assert supervisor.asked == [1, 2]
    assert supervisor.steps_reported() == [1, 2]


@pytest.mark.slow
def test_what_a_rank_raises_is_the_reason(
    tiny_folder: Path, tmp_path: Path, supervisors: Supervise
) -> None:
    manifest = job_manifest(tiny_folder, "ddp")
    broken = replace(manifest, model=replace(manifest.model, folder=str(tmp_path / "nothing")))
    supervisor = supervisors(tmp_path / "job", broken)
    process = supervisor.start()
    assert process.wait(timeout=300) == 1
    status = client.status(supervisor.folder)
    assert status.state is JobState.FAILED
    assert "nothing" in status.reason


@pytest.mark.slow
def test_a_folder_that_is_taken_keeps_what_it_says(
    tiny_folder: Path, tmp_path: Path, supervisors: Supervise
) -> None:
    supervisor = supervisors(tmp_path / "job", job_manifest(tiny_folder, "ddp"))
    first = supervisor.start()
    wait_until(lambda: client.pending_need(supervisor.folder) is not None)
    assert supervisor.start().wait(timeout=300) == client.EXIT_BUSY
    assert client.status(supervisor.folder).state is not JobState.FAILED
    stopped = client.stop_runner(first)
    assert stopped == client.EXIT_STOPPED
    assert client.status(supervisor.folder).state is JobState.STOPPED
