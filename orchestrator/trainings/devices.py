"""The devices of this installation: one training job each."""

from __future__ import annotations

import os
from collections.abc import Mapping

from django.conf import settings

from training.scheduling import Device


def devices() -> list[Device]:
    """As `SWITCHBACK_TRAINING_DEVICES` lists them: `cpu`, `cuda:0`, `cuda:1=80000` (with MB),
    `gpu1/cuda:0` (of one host of several)."""
    found = []
    for entry in settings.TRAINING_DEVICES:
        name, _, size_mb = entry.partition("=")
        memory_mb = float(size_mb) if size_mb else None
        if memory_mb is None and name == "cpu":
            memory_mb = _memory_of_the_machine_mb()
        found.append(Device(name, memory_mb))
    return found


def environment_for(device: str) -> Mapping[str, str]:
    """What the trainer's process sees beside its manifest, which names the kind alone."""
    kind, _, number = device.rpartition("/")[2].partition(":")
    return {"CUDA_VISIBLE_DEVICES": number or "0"} if kind == "cuda" else {}


def queue_of(device: str) -> str:
    """Of the workers that may train on it."""
    host = device.rpartition("/")[0]
    return f"gpu-{host}" if host else "gpu"


def _memory_of_the_machine_mb() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
    except (ValueError, OSError):
        return None
