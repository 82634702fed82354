"""Runs the cells of a grid, one after the other, and keeps what they came to.

    results.jsonl      one line per finished cell; what stands here is not run again
    base.json          the untrained weights on held-out tasks, which are the same for every cell
    pool.jsonl         the author's transcripts as rows
    cells/s0-l0.05/    a job folder of the trainer, while its cell runs

A cell that was interrupted goes on from its folder: rows of a step are on disk before its update,
so nothing is sampled twice, and the trainer resumes bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.reproduction.cells import TEMPERATURE, Cell, Size, manifest_of
from orchestrator.reproduction.player import Attempt, ModelServer, Player, Policy, author_rows
from orchestrator.reproduction.results import measured, observation_share
from orchestrator.reproduction.world import World, make_world, server_of
from orchestrator.runs.seeds import derive_seed
from training.checkpoint import write_file
from training.jobs import client
from training.jobs.client import JobState
from training.jobs.folder import Evaluation, EvaluationNeed, Need, read_json, write_json
from training.tokenizer import ChatTokenizer

MAX_ATTEMPTS = 3
"""Of the trainer, without a finished step between."""
POLL_S = 0.2
Say = Callable[[str], None]


class CellFailed(RuntimeError):
    """The trainer of a cell ended without a result; the message says why."""


@dataclass(frozen=True)
class Setting:
    """Where a grid runs, and with how much of the machine."""

    out: Path
    model: Path
    examples: Path
    size: Size
    threads: int = 2


def run_grid(setting: Setting, cells: Sequence[Cell], say: Say) -> list[dict[str, Any]]:
    """Runs what has no result; returns the lines of all results of this size.

    Raises CellFailed, and whatever interrupts it; finished cells are kept then.
    """
    setting.out.mkdir(parents=True, exist_ok=True)
    done = {(line["seed"], line["lambda"]) for line in read_results(setting.out, setting.size)}
    open_cells = [cell for cell in cells if (cell.seed, cell.value) not in done]
    if open_cells:
        with _playing(setting) as (world, player):
            for number, cell in enumerate(open_cells, start=1):
                say(f"cell {cell.name} ({number} of {len(open_cells)})")
                line = _Keeper(setting, world, player, cell, say).keep()
                _append(setting.out / "results.jsonl", line)
                shutil.rmtree(setting.out / "cells" / cell.name)
    return read_results(setting.out, setting.size)


def read_results(out: Path, size: Size) -> list[dict[str, Any]]:
    """Finished cells of this size, in the order in which they ended."""
    path = out / "results.jsonl"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [line for line in lines if line["size"] == size.fingerprint()]


@contextmanager
def _playing(setting: Setting) -> Iterator[tuple[World, Player]]:
    world = make_world(setting.size, examples=setting.examples)
    environment = server_of(world, setting.out / "environment")
    log = setting.out / "model.log"
    server = ModelServer(setting.model, port=_free_port(), threads=setting.threads, log=log)
    with environment, server:
        yield (
            world,
            Player(world, model_url=server.url, environment_url=environment.base_url),
        )


class _Keeper:
    """One cell: its trainer kept alive, its questions answered."""

    def __init__(
        self, setting: Setting, world: World, player: Player, cell: Cell, say: Say
    ) -> None:
        self._setting = setting
        self._size = setting.size
        self._world = world
        self._player = player
        self._cell = cell
        self._say = say
        self._folder = setting.out / "cells" / cell.name
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._failed_at = 0

    def keep(self) -> dict[str, Any]:
        """The cell's line of results."""
        started = time.monotonic()
        manifest = manifest_of(
            self._cell, self._size, model=self._setting.model, threads=self._setting.threads
        )
        client.submit(self._folder, manifest)
        client.write_pool(self._folder, self._pool())
        try:
            while (status := client.status(self._folder)).state is not JobState.DONE:
                self._ensure_alive(status)
                if evaluation := client.pending_evaluation(self._folder):
                    self._evaluate(evaluation)
                elif need := client.pending_need(self._folder):
                    self._answer(need)
                else:
                    self._wait()
        finally:
            if self._process is not None:
                client.stop_runner(self._process)
        events, _ = client.read_events(self._folder)
        assert status.adapter is not None, "a job that is done has weights"
        test = self._solved(
            self._world.test, Policy(f"{self._cell.name}-chosen", str(status.adapter))
        )
        return {
            "seed": self._cell.seed,
            "lambda": self._cell.value,
            "size": self._size.fingerprint(),
            "chosen_step": status.chosen_step,
            "test": test,
            "base_test": self._base("test", self._world.test),
            **measured(events),
            "observation_share": observation_share(self._rows()),
            "wall_s": round(time.monotonic() - started, 1),
        }

    # --- the trainer ---------------------------------------------------------------------------

    def _ensure_alive(self, status: client.JobStatus) -> None:
        process = self._process
        if process is not None:
            if process.poll() is None:
                if status.state is not JobState.HUNG:
                    return
                client.stop_runner(process)
            self._count_failure(status, process.returncode)
        self._process = client.start_runner(self._folder, env=dict(os.environ))

    def _count_failure(self, status: client.JobStatus, code: int) -> None:
        self._failures = 1 if status.step > self._failed_at else self._failures + 1
        self._failed_at = status.step
        if self._failures >= MAX_ATTEMPTS:
            log = self._folder / "runner.log"
            reason = status.reason or f"exit code {code}"
            raise CellFailed(f"cell {self._cell.name}: {reason}; see {log}")

    def _wait(self) -> None:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=POLL_S)

    # --- what it asks for ----------------------------------------------------------------------

    def _answer(self, need: Need) -> None:
        tasks, seeds, names = [], [], []
        chosen = self._world.tasks_of_step(self._cell.seed, need.step, self._size.groups)
        for task in chosen:
            for replicate in range(self._size.samples):
                tasks.append(task)
                # The same for every lambda: cells of one seed begin with the same luck.
                seeds.append(derive_seed(self._cell.seed, need.step, task.key, replicate))
                names.append(f"{need.step}-{task.key}-{replicate}")
        policy = self._policy(need.weight_version, need.adapter)
        attempts = self._player.play(tasks, policy, temperature=TEMPERATURE, seeds=seeds)
        records = [
            attempt.row(rollout=name, weight_version=need.weight_version)
            for attempt, name in zip(attempts, names, strict=True)
            if attempt.track.ids
        ]
        if not records:
            raise CellFailed(f"cell {self._cell.name}: {attempts[0].reason}")
        client.write_rows(self._folder, step=need.step, records=records)
        rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else float("nan")
        self._say(f"  step {need.step}: reward {mean:.2f} over {len(rewards)} of {len(attempts)}")

    def _evaluate(self, need: EvaluationNeed) -> None:
        if need.step == 0:
            solved = self._base("select", self._world.select)
        else:
            policy = self._policy(need.weight_version, need.adapter)
            solved = self._solved(self._world.select, policy)
        values = [value for value in solved.values() if value is not None]
        mean = sum(values) / len(values) if values else None
        client.write_evaluation(
            self._folder, Evaluation(need.step, mean, len(values), len(solved) - len(values))
        )
        text = "no score" if mean is None else f"{mean:.3f}"
        self._say(f"  after step {need.step}: {text} on {len(values)} held-out tasks")

    def _policy(self, version: str, adapter: str | None) -> Policy:
        return Policy(f"{self._cell.name}-{version}", adapter) if adapter else Policy()

    def _solved(self, tasks: Sequence[TaskSpec], policy: Policy) -> dict[str, float | None]:
        """Greedy, one attempt per task: by task 1, 0, or None where the machinery failed."""
        attempts: list[Attempt] = self._player.play(
            tasks, policy, temperature=0.0, seeds=[0] * len(tasks)
        )
        return {attempt.task: attempt.solved for attempt in attempts}

    def _base(self, split: str, tasks: Sequence[TaskSpec]) -> dict[str, float | None]:
        """The untrained weights; measured once, since an adapter begins as no change."""
        path = self._setting.out / "base.json"
        found = read_json(path) or {}
        if found.get("size") != self._size.fingerprint():
            found = {"size": self._size.fingerprint()}
        if split not in found:
            found[split] = self._solved(tasks, Policy())
            write_json(path, found)
        known: dict[str, float | None] = found[split]
        return known

    def _rows(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self._folder / "rows").glob("step-*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def _pool(self) -> list[dict[str, Any]]:
        return author_rows(self._world, ChatTokenizer.from_folder(self._setting.model))


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    before = path.read_bytes() if path.exists() else b""
    write_file(path, before + json.dumps(line, sort_keys=True).encode() + b"\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
