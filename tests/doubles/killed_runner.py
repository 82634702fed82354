"""A runner that ends itself with SIGKILL at a chosen moment: the real one, plus the bullet.

`python -m tests.doubles.killed_runner --job DIR --at PHASE:STEP` or `--at fsync:N` (the N-th fsync
of the process, counted from 1, before it happens). `--at nan:N` shoots nobody: from the N-th pass
on, one entry of the gradient is not a number.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from concurrent.futures import Future
from typing import Any, NoReturn

from training.backends.base import PassStats
from training.backends.local import LocalSession
from training.jobs import runner, sessions
from training.jobs.heartbeat import Heartbeat


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL cannot be survived")


def arm_phase(phase: str, step: int) -> None:
    class Mortal(Heartbeat):
        def enter(self, phase_: str, *, step: int, timeout_s: float | None = None) -> None:
            super().enter(phase_, step=step, timeout_s=timeout_s)
            if (phase_, step) == target:
                die()

    target = (phase, step)
    setattr(runner, "Heartbeat", Mortal)  # noqa: B010 # the point of this double


def arm_fsync(count: int) -> None:
    real, seen = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            die()
        real(descriptor)

    setattr(os, "fsync", fsync)  # noqa: B010 # the point of this double


def arm_nan(first: int) -> None:
    class Broken(LocalSession):
        passes = 0

        def forward_backward(self, *args: Any, **kwargs: Any) -> Future[PassStats]:
            result = super().forward_backward(*args, **kwargs)
            self.passes += 1
            if self.passes >= first:
                grad = self.parameters[-1].grad
                assert grad is not None
                grad.view(-1)[0] = float("nan")
            return result

    setattr(sessions, "LocalSession", Broken)  # noqa: B010 # the point of this double


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--at", required=True)
    options = parser.parse_args()
    moment, _, number = options.at.partition(":")
    if moment == "fsync":
        arm_fsync(int(number))
    elif moment == "nan":
        arm_nan(int(number))
    else:
        arm_phase(moment, int(number))
    sys.exit(runner.main(["--job", options.job]))
