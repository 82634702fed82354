"""What has to be equal rather than fast: the tests of it, counted.

Two processes with sharded weights (FSDP2) against one, to 1e-6; a resumed job and one that was
killed in every phase against one that was not, bit for bit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.children import tied
from benchmarks.training.part import report

RANKS = "tests/training/test_parallel.py"
RESUME = (
    "tests/training/test_local_backend.py::test_training_goes_on_bit_for_bit_after_a_save",
    "tests/training/test_runner.py::test_a_job_killed_in_every_phase_ends_bit_for_bit_the_same",
)


def main() -> None:
    """Both counts."""
    report("exact.two_process_gradient_failures", _failures(RANKS), 0.0)
    report("exact.resume_failures", _failures(*RESUME), 0.0)


def _failures(*tests: str) -> float:
    """0 if all passed, 1 if not."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "", *tests]
    done = subprocess.run(
        tied(command), cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, check=False
    )
    return float(done.returncode != 0)


if __name__ == "__main__":
    main()
