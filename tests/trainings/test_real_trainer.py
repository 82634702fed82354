"""A training with every part real, its weights too: a tiny model is sampled, trained and served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from optimizer.harness import Limits, Sampling
from orchestrator.events.models import Event
from orchestrator.jobs.execution import run_attempt
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.doubles.vllm_server import NAME, running
from tests.runs.drive import make_endpoint, make_harness
from tests.serving.waiting import wait_until_ready
from tests.trainings.build import parts, start
from training.backends.local import LocalSession, ModelSpec
from training.jobs.folder import JobFolder
from training.lora import spec_of_folder
from training.models import TrainingJob, TrainingState
from training.prepare import make_tiny
from training.rows import read_rows
from training.types import TokenKind

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

LIMIT_S = 240.0


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Address of a model server of its own process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "training.serve", "--model", str(folder), "--name", "tiny"]
    with subprocess.Popen(
        [*command, "--port", str(port), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            with httpx.Client(base_url=url, timeout=60) as client:
                wait_until_ready(client, process, timeout_s=LIMIT_S)
            yield url
        finally:
            process.terminate()


def trained(people: People, fault_url: str, url: str, **settings: Any) -> TrainingJob:
    made = parts(people.project, base_url=fault_url)
    made["model"] = make_endpoint(people.project, url, model="tiny")
    made["harness"] = make_harness(
        people.project,
        sampling=Sampling(temperature=1.0, max_tokens=16, stop=()),
        limits=Limits(max_steps=2),
    )
    job = start(people, made, temperature=1.0, learning_rate=1e-2, threads=1, **settings)
    assert job.job_id is not None
    run_attempt(job.job_id)
    job.refresh_from_db()
    assert (job.state, job.error) == (TrainingState.COMPLETED, "")
    return job


def steps_of(job: TrainingJob) -> list[dict[str, Any]]:
    events = Event.objects.filter(stream_id=job.stream_id, kind="train.step").order_by("seq")
    return [event.payload for event in events]


def assert_sampled_by(session: LocalSession, job: TrainingJob, *, step: int) -> None:
    """The tokens of a step were drawn from these weights, with these log-probs."""
    rows = read_rows(JobFolder(Path(job.folder)).rows_file(step).read_text("utf-8"))
    found = 0
    for row, logprobs in zip(rows, session.forward(rows, temperature=1.0).result(), strict=True):
        assert row.logprobs is not None
        for kind, sampled, ours in zip(row.kinds[1:], row.logprobs[1:], logprobs, strict=True):
            if kind is TokenKind.ACTION:
                assert abs(sampled - ours) < 1e-3
                found += 1
    assert found > 0


def test_every_weight_over_two_processes_in_shards(
    people: People, data: Path, fault_url: str, tiny_folder: Path, settings: Any
) -> None:
    settings.MODEL_DIR = tiny_folder
    with serving(tiny_folder) as url:
        job = trained(people, fault_url, url, full_weights=True, processes=2, shard="fsdp2")
    assert [step["step"] for step in steps_of(job)] == [1, 2, 3]
    # Sampled from what was trained: whole models, loaded version by version.
    whole = LocalSession(ModelSpec(Path(job.folder) / "publish" / "v0001", None))
    assert_sampled_by(whole, job, step=2)
    versions = set(Rollout.objects.values_list("run__adapter_name", flat=True))
    assert {"", f"t{job.pk}-v0001", f"t{job.pk}-v0002", f"t{job.pk}-v0003"} == versions
    assert (Path(job.adapter_path) / "model.safetensors").is_file()


def test_an_adapter_that_vllm_samples(
    people: People, data: Path, fault_url: str, tiny_folder: Path, settings: Any
) -> None:
    settings.MODEL_DIR = tiny_folder
    with running(tiny_folder) as double:
        with serving(tiny_folder, "--vllm", double.url, "--vllm-model", NAME) as url:
            job = trained(people, fault_url, url, lora_rank=4)
        assert double.loaded == [f"t{job.pk}-v{number:04d}" for number in (1, 2, 3)]
    assert [step["step"] for step in steps_of(job)] == [1, 2, 3]
    adapter = Path(job.folder) / "publish" / "v0001"
    assert_sampled_by(
        LocalSession(ModelSpec(tiny_folder, spec_of_folder(adapter), adapter)), job, step=2
    )
