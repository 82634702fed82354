"""A trainer without weights: the real one's files and manners, at no cost.

Started by a job whose manifest names an interpreter: `write_interpreter(folder, mode)` makes one.
Modes: `good` trains; `alike` fails each time with the same reason but for a number; `once` is
killed in step 2, the first time; `collapses` writes role markers from step 4 on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from pathlib import Path

from tests.waiting import wait_until
from training import selection
from training.checkpoint import LATEST
from training.jobs.events import EventLog
from training.jobs.folder import EvaluationNeed, JobFolder, Need, version_name, write_json
from training.jobs.heartbeat import Heartbeat
from training.records import write_record
from training.rows import read_rows

WEIGHTS = "adapter_model.safetensors"
LIMIT_S = 240.0


def write_interpreter(folder: Path, mode: str = "good") -> str:
    """Path of a program that takes Python's place."""
    path = folder / f"trainer-{mode}"
    command = f'exec {sys.executable} -m tests.doubles.trainer {mode} "$@"\n'
    path.write_text(f"#!/bin/sh\n{command}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


class Trainer:
    def __init__(self, job: JobFolder, mode: str) -> None:
        self.job, self.mode = job, mode
        self.manifest = job.manifest()
        self.events = EventLog(job.events_file)
        self.beat = Heartbeat(job.heartbeat_file, on_orphaned=lambda: os._exit(1))
        self.beat.start()

    def run(self) -> int:
        if self.mode == "alike":
            return self.fail()
        last = self.manifest.budgets.steps
        self.evaluate(0)
        for step in range(1, last + 1):
            if not self.events.has("step", step):
                self.train(step)
            self.evaluate(step)
        chosen = selection.choose(self.job.evaluations(), last_step=last, min_coverage=0.8)
        folder = self.job.published / version_name(chosen.step)
        digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
        done = {"adapter": str(folder), "sha256": digest, "steps": last}
        write_json(self.job.done_file, {**done, "step": chosen.step, "reason": chosen.reason})
        self.beat.stop("done")
        return 0

    def fail(self) -> int:
        count = self.job.path / "failures"
        n = len(count.read_text()) if count.exists() else 0
        count.write_text("x" * (n + 1))
        self.beat.stop("failed")
        write_json(self.job.failed_file, {"reason": f"disk full, {n} MB left", "kind": "OSError"})
        return 1

    def train(self, step: int) -> None:
        self.beat.enter("sampling", step=step)
        need = Need(step, version_name(step - 1), self.adapter(step - 1) or None)
        path = self.job.rows_file(step)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            write_json(self.job.need_file(step), write_record(need))
        wait_until(path.exists, limit_s=LIMIT_S, what=str(path))
        rows = read_rows(path.read_text(encoding="utf-8"))
        killed = self.job.path / "killed"
        if self.mode == "once" and step == 2 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        folder = self.job.published / version_name(step)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / WEIGHTS).write_bytes(f"weights of step {step}".encode())
        self.job.checkpoints.mkdir(exist_ok=True)
        (self.job.checkpoints / LATEST).write_text(f"step-{step:06d}\n")
        rewards = [row.reward for row in rows if row.reward is not None]
        marked = 0.5 if self.mode == "collapses" and step >= 4 else 0.0
        metrics = {
            "step": step,
            "loss": 0.1,
            "reward_mean": sum(rewards) / len(rewards),
            "reward_n": len(rewards),
            "reward_masked": 0,
            "rollouts": len({row.rollout for row in rows}),
            "row_tokens": sum(len(row.ids) for row in rows),
            "tokens_per_s": 1000.0,
            "world_ce_selected_per_token": 2.0 / step,
            "role_marker_share": marked,
            "versions": sorted({row.weight_version for row in rows}),
        }
        self.events.append("step", metrics)

    def adapter(self, step: int) -> str:
        return str(self.job.published / version_name(step)) if step else ""

    def evaluate(self, step: int) -> None:
        every = self.manifest.evaluation.every_steps
        path = self.job.scores_file(step)
        is_due = every and (step % every == 0 or step == self.manifest.budgets.steps)
        if not is_due or self.events.has("evaluated", step):
            return
        self.beat.enter("evaluating", step=step)
        need = EvaluationNeed(step, version_name(step), self.adapter(step))
        if not path.exists():
            write_json(self.job.evaluate_file(step), write_record(need))
        wait_until(path.exists, limit_s=LIMIT_S, what=str(path))
        scores = json.loads(path.read_text(encoding="utf-8"))
        rows = read_rows(self.job.pool_file.read_text(encoding="utf-8"))
        self.events.append("evaluated", {**scores, "pool_ce": 2.0, "pool_rows": len(rows)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("-m", dest="module")
    parser.add_argument("--job", type=Path)
    parser.add_argument("--parent", type=int)
    options = parser.parse_args()
    sys.exit(Trainer(JobFolder(options.job), options.mode).run())
