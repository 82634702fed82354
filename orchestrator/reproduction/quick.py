"""The experiment in the world of four files: two trainings side by side, GRPO and ECHO.

Each is a process of one thread, so that two cores are busy and neither takes from the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VALUES = (0.0, 0.05)
"""GRPO, and ECHO with the paper's lambda and normalisation."""
LIMIT_S = 1800.0
"""Of both; they take under a minute on two quiet cores, and three were measured at a load of 6."""
GRACE_S = 10.0


class ExperimentFailed(RuntimeError):
    """A training ended without its figures; the message ends with its last words."""


def run_quick(*, seed: int, steps: int | None = None) -> dict[float, list[dict[str, Any]]]:
    """The lines of each training by lambda. Raises ExperimentFailed."""
    deadline = time.monotonic() + LIMIT_S
    found = {}
    with tempfile.TemporaryDirectory(prefix="switchback-reproduce-") as name:
        outputs = {value: Path(name) / f"{value:g}" for value in VALUES}
        children = {}
        try:
            for value, path in outputs.items():
                children[value] = _start(value, seed, steps, path)
            for value, child in children.items():
                _finish(child, value, outputs[value], deadline)
                text = outputs[value].read_text(encoding="utf-8")
                found[value] = [json.loads(line) for line in text.splitlines()]
        finally:
            for child in children.values():
                _end(child)
    return found


def _start(value: float, seed: int, steps: int | None, path: Path) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "training.reproduction.experiment"),
        *("--value", str(value), "--seed", str(seed), "--parent", str(os.getpid())),
    ]
    if steps is not None:
        command += ["--steps", str(steps)]
    with path.open("wb") as out, _words(path).open("wb") as words:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=words,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).resolve().parents[2],
        )


def _finish(child: subprocess.Popen[bytes], value: float, path: Path, deadline: float) -> None:
    try:
        code = child.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise ExperimentFailed(
            f"the training with λ {value:g} took more than {LIMIT_S:g} s"
        ) from error
    if code != 0:
        last = _words(path).read_text(encoding="utf-8", errors="replace").strip()[-1000:]
        raise ExperimentFailed(f"the training with λ {value:g} ended with {code}: {last}")


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _words(path: Path) -> Path:
    return path.with_suffix(".err")
