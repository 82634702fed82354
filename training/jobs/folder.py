"""The folder of a training job: the only thing that runner and supervisor share.

    manifest.json              what to do; written once
    heartbeat.json             rewritten every two seconds while a runner lives
    events.jsonl               metrics, appended; one line per event
    need/step-000001.json      the runner asks for the rollouts of a step
    rows/step-000001.jsonl     the supervisor's answer: written aside, fsynced, renamed
    evaluate/step-000004.json  the runner asks how well the weights of a step do on held-out tasks
    scores/step-000004.json    the supervisor's answer
    pool.jsonl                 rows that nothing is trained on, for the surprise at each evaluation
    checkpoints/step-000001/   with LATEST
    publish/v0001/             adapters in PEFT's format, one per step
    done.json | failed.json    how it ended
    runner.lock                held by the one runner

Rows of a step exist before its update, so a crash trains them again and never samples again.
No torch here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.checkpoint import step_name, write_file
from training.errors import ConfigurationError
from training.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Need:
    """A request for the rollouts of one step."""

    step: int
    weight_version: str
    """What the rows must be stamped with."""
    adapter: str | None
    """Folder to sample with; None: the base weights."""

    def versions(self, max_staleness: int) -> tuple[str, ...]:
        """Weight versions whose rows are taken, newest first."""
        oldest = max(0, self.step - 1 - max_staleness)
        return tuple(version_name(n) for n in range(self.step - 1, oldest - 1, -1))


@dataclass(frozen=True, slots=True)
class EvaluationNeed:
    """A request to measure the weights of one step on held-out tasks."""

    step: int
    weight_version: str
    adapter: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What held-out tasks say of the weights of one step."""

    step: int
    mean: float | None
    """Over the rollouts with a score, 0 to 1; None where there are none."""
    n_scored: int
    n_errored: int

    @property
    def coverage(self) -> float:
        """Share of the rollouts that have a score."""
        total = self.n_scored + self.n_errored
        return self.n_scored / total if total else 0.0


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Names inside a job folder, and its small JSON files."""

    path: Path

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def heartbeat_file(self) -> Path:
        return self.path / "heartbeat.json"

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def done_file(self) -> Path:
        return self.path / "done.json"

    @property
    def failed_file(self) -> Path:
        return self.path / "failed.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "runner.lock"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def published(self) -> Path:
        return self.path / "publish"

    @property
    def pool_file(self) -> Path:
        return self.path / "pool.jsonl"

    def need_file(self, step: int) -> Path:
        return self.path / "need" / f"{step_name(step)}.json"

    def rows_file(self, step: int) -> Path:
        return self.path / "rows" / f"{step_name(step)}.jsonl"

    def evaluate_file(self, step: int) -> Path:
        return self.path / "evaluate" / f"{step_name(step)}.json"

    def scores_file(self, step: int) -> Path:
        return self.path / "scores" / f"{step_name(step)}.json"

    def evaluations(self) -> list[Evaluation]:
        """All that were answered, by step."""
        found = (read_json(path) for path in sorted((self.path / "scores").glob("step-*.json")))
        return [Evaluation(**values) for values in found if values is not None]

    def manifest(self) -> Manifest:
        """Raises ConfigurationError if it is missing or invalid."""
        try:
            values = json.loads(self.manifest_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{self.manifest_file}: {error}") from error
        return Manifest.from_json(values)


def version_name(step: int) -> str:
    """What the weights after a step are called; v0000 are those that the job began with."""
    return f"v{step:04d}"


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a small file, or None while there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return values if isinstance(values, dict) else None


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replace a small file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(values, indent=1, sort_keys=True) + "\n").encode())
