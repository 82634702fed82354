"""What is done to the product, and how it is taken away."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.kills.doubles import wait_s
from tests.kills.product import LEASE_S, Product
from tests.kills.shim import Disk
from tests.kills.world import World

WITH_MODEL = ("sandboxed-rollouts", "train-sampling", "train-evaluating", "climb-transition")
TRAINS = ("train-sampling", "train-update", "train-evaluating", "checkpoint")
WITH_ENVIRONMENT = ("rollouts", "sandboxed-rollouts", "optimise", "certify", "train-sampling")


@dataclass(frozen=True)
class Scene:
    product: Product
    world: World
    draw: random.Random

    def hold(self, least_s: float, most_s: float) -> None:
        """While the fault lasts."""
        wait_s(self.draw.uniform(least_s, most_s))


@dataclass(frozen=True)
class Fault:
    name: str
    strike: Callable[[Scene], str]
    """Does it and takes it away again; what it hit, in words, empty if there was nothing."""
    fits: tuple[str, ...] = ()
    """Activities that have what it hits; empty: all."""
    scale_only: bool = False


def _kill(part: str) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        found = scene.product.find(part)
        if not found:
            return ""
        chosen = scene.draw.choice(found)
        with contextlib.suppress(psutil.Error):
            chosen.kill()
        return f"{part} {chosen.pid}"

    return strike


def _kill_all(part: str) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        found = scene.product.find(part)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return f"{len(found)} of {part}" if found else ""

    return strike


def _freeze(part: str) -> Callable[[Scene], str]:
    """Longer than the lease: others take its work over, and it wakes up not knowing."""

    def strike(scene: Scene) -> str:
        found = scene.product.find(part)
        if not found:
            return ""
        chosen = [scene.draw.choice(found)]
        _stopped(scene, chosen)
        return f"{part} {chosen[0].pid}"

    return strike


def _sleep(scene: Scene) -> str:
    """All of the product at once, as a host that sleeps."""
    found = list(scene.product.all())
    _stopped(scene, found)
    return f"{len(found)} processes"


def _stopped(scene: Scene, processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    try:
        scene.hold(LEASE_S + 2, LEASE_S + 4)
    finally:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)


def _kill_environment(scene: Scene) -> str:
    """Servers that the workers keep, or the one at an address that runs beside the product."""
    found = scene.product.find("environment")
    if found:
        with contextlib.suppress(psutil.Error):
            found[0].kill()
        return f"environment server {found[0].pid}"
    scene.world.environment.send(signal.SIGKILL)
    scene.hold(0.2, 1.0)
    asyncio.run(scene.world.environment.start())
    return "environment server at its address"


def _disk(disk: Disk, *, write_us: int = 0) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        scene.product.shim.set(disk, write_us=write_us)
        try:
            scene.hold(2, 6)
        finally:
            scene.product.shim.set()
        return f"data folder {disk.name.lower().replace('_', '-')}"

    return strike


def _jump(seconds: int) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        scene.product.shim.set(clock_s=seconds)
        try:
            scene.hold(3, 6)
        finally:
            scene.product.shim.set()
        return f"wall clock by {seconds:+d} s and back"

    return strike


def _kill_database(scene: Scene) -> str:
    assert scene.product.services is not None
    scene.product.services.kill_database()
    scene.hold(0.5, 3)
    scene.product.services.restart_database()
    return "PostgreSQL with all its backends"


def _kill_broker(scene: Scene) -> str:
    assert scene.product.services is not None
    scene.product.services.kill_broker()
    scene.hold(0.5, 3)
    scene.product.services.restart_broker()
    return "Valkey with its messages"


def _cut(scene: Scene) -> str:
    assert scene.product.services is not None
    for _ in range(scene.draw.randint(1, 4)):
        scene.product.services.to_database.cut()
        scene.product.services.to_broker.cut()
        scene.hold(0.1, 0.8)
    return "connections to PostgreSQL and Valkey"


def _silence(scene: Scene) -> str:
    assert scene.product.services is not None
    lines = (scene.product.services.to_database, scene.product.services.to_broker)
    for line in lines:
        line.silence(is_silent=True)
    try:
        scene.hold(LEASE_S + 1, LEASE_S + 4)
    finally:
        for line in lines:
            line.silence(is_silent=False)
    return "lines to PostgreSQL and Valkey silent"


FAULTS = (
    Fault("kill-worker", _kill("worker")),
    Fault("kill-all-workers", _kill_all("worker")),
    Fault("kill-trainer-worker", _kill("gpu"), TRAINS),
    Fault("kill-trainer", _kill("trainer"), TRAINS),
    Fault("kill-model", _kill("model"), WITH_MODEL),
    Fault("kill-environment", _kill_environment, WITH_ENVIRONMENT),
    Fault("kill-web", _kill("web")),
    Fault("kill-supervisor", _kill("supervisor")),
    Fault("freeze-worker", _freeze("worker")),
    Fault("freeze-trainer-worker", _freeze("gpu"), TRAINS),
    Fault("freeze-everything", _sleep),
    Fault("full-disk", _disk(Disk.FULL)),
    Fault("read-only-disk", _disk(Disk.READ_ONLY)),
    Fault("slow-disk", _disk(Disk.SLOW, write_us=30_000)),
    Fault("clock-forward", _jump(3600)),
    Fault("clock-back", _jump(-3600)),
    Fault("kill-database", _kill_database, scale_only=True),
    Fault("kill-broker", _kill_broker, scale_only=True),
    Fault("cut-connections", _cut, scale_only=True),
    Fault("silent-connections", _silence, scale_only=True),
)


def faults_on(stack: str, only: tuple[str, ...] = ()) -> list[Fault]:
    """Of a stack; `only`: words that names contain."""
    found = [fault for fault in FAULTS if stack == "scale" or not fault.scale_only]
    return [fault for fault in found if not only or any(word in fault.name for word in only)]
