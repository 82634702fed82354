"""Devices of several hosts: a training goes to a worker of the host whose device it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings as django_settings

from orchestrator.trainings.devices import devices, environment_for, queue_of
from tests.base import People
from tests.trainings.build import start


@pytest.mark.django_db(transaction=True)
def test_a_training_is_queued_for_the_host_of_its_device(people: People, settings: Any) -> None:
    settings.TRAINING_DEVICES = ["gpu1/cpu", "gpu2/cpu"]
    settings.JOB_QUEUES = ["default", "rollouts", "gpu", "gpu-gpu1", "gpu-gpu2"]
    first, second = start(people), start(people)
    assert (first.device, second.device) == ("gpu1/cpu", "gpu2/cpu")
    assert first.job is not None
    assert second.job is not None
    assert (first.job.queue, second.job.queue) == ("gpu-gpu1", "gpu-gpu2")


def test_what_a_device_of_a_host_is(settings: Any) -> None:
    settings.TRAINING_DEVICES = ["gpu1/cuda:3=80000", "cuda:1"]
    named, alone = devices()
    assert (named.name, named.kind, named.memory_mb) == ("gpu1/cuda:3", "cuda", 80000.0)
    assert (alone.kind, queue_of(alone.name)) == ("cuda", "gpu")
    assert environment_for("gpu1/cuda:3") == {"CUDA_VISIBLE_DEVICES": "3"}
    assert environment_for("gpu1/cpu") == {}


@pytest.mark.parametrize(
    ("host", "slots", "queues"), [("gpu1", 2, "gpu,gpu-gpu1"), ("web1", 1, "gpu")]
)
def test_a_host_serves_its_own_devices(host: str, slots: int, queues: str) -> None:
    script = "from orchestrator import settings as s; import json; "
    script += "print(json.dumps([s.GPU_SLOTS, s.GPU_QUEUES, s.JOB_QUEUES]))"
    variables = {
        "SWITCHBACK_HOST": host,
        "SWITCHBACK_TRAINING_DEVICES": "gpu1/cuda:0,gpu1/cuda:1,gpu2/cuda:0",
    }
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=django_settings.BASE_DIR,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout) == [
        slots,
        queues,
        ["default", "rollouts", "gpu", "gpu-gpu1", "gpu-gpu2"],
    ]
