"""Whole jobs on a Tinker server: trained, killed and resumed, and refused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tinker")

from tests.training.builders import make_step  # after the skip
from tests.training.test_tinker import AllWrong, IgnoresClip
from tests.waiting import wait_until
from training.errors import ConfigurationError
from training.jobs import client
from training.jobs.client import JobState
from training.jobs.events import EventLog
from training.jobs.folder import JobFolder, read_json
from training.jobs.sessions_tinker import VERDICT_FILE, open_session
from training.manifest import (
    BudgetPart,
    ExecutionPart,
    LoraPart,
    Manifest,
    ModelPart,
    OptimiserPart,
    TinkerPart,
)
from training.rows import row_to_json
from training.schedule import RateSpec
from training.tinker.engine import Engine
from training.tinker.server import TinkerServer
from training.types import ObjectiveSpec


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def server(tiny_folder: Path) -> Iterator[TinkerServer]:
    with TinkerServer(Engine(tiny_folder)) as started:
        yield started


def manifest_for(url: str, folder: Path) -> Manifest:
    return Manifest(
        model=ModelPart(folder=str(folder)),
        lora=LoraPart(rank=4),
        optimiser=OptimiserPart(rate=RateSpec(base=1e-2)),
        execution=ExecutionPart(backend="tinker", threads=1),
        tinker=TinkerPart(url, "tiny", timeout_s=120.0),
        budgets=BudgetPart(steps=2, rows_timeout_s=120.0),
    )


def answer(folder: Path) -> None:
    """Rows for whatever step is asked for."""
    need = client.pending_need(folder)
    if need is not None:
        assert need.adapter is not None  # the base too is sampled on the server
        assert (Path(need.adapter) / "tinker.json").exists()
        rows = [
            {**row_to_json(row), "weight_version": need.weight_version}
            for row in make_step(seed=need.step)
        ]
        client.write_rows(folder, step=need.step, records=rows)


def scores(server: TinkerServer, pointer: dict[str, str]) -> list[float]:
    name = server.engine.load(pointer["path"], has_optimizer=False)
    return server.engine.score(server.engine.trainings[name].model, list(range(30)))


@pytest.mark.slow
def test_a_job_trains_on_the_server_and_goes_on_after_a_kill(
    server: TinkerServer, tiny_folder: Path, tmp_path: Path
) -> None:
    job = client.submit(tmp_path / "job", manifest_for(server.url, tiny_folder))
    first = client.start_runner(job.path)
    try:

        def is_at_second_step() -> bool:
            assert first.poll() is None, (job.path / "runner.log").read_text()
            need = client.pending_need(job.path)
            if need is not None and need.step == 1:
                answer(job.path)
            return need is not None and need.step == 2

        wait_until(is_at_second_step, limit_s=120, what="the first step")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    second = client.start_runner(job.path)

    def is_over() -> bool:
        answer(job.path)
        return second.poll() is not None

    wait_until(is_over, limit_s=120, what="the second attempt")
    status = client.status(job.path)
    assert status.state is JobState.DONE, (job.path / "runner.log").read_text()
    events, _ = client.read_events(job.path)
    kinds = [event["kind"] for event in events]
    assert kinds.count("connected") == 2  # each attempt asks before it trains
    assert kinds.count("step") == 2
    assert "resumed" in kinds
    connected = next(event for event in events if event["kind"] == "connected")
    assert (connected["route"], connected["refusal"]) == ("D", "")
    steps = [event for event in events if event["kind"] == "step"]
    assert all(step["grad_norm"] > 0 and step["n_ce"] > 0 for step in steps)
    assert status.adapter is not None
    pointers = [
        json.loads((job.published / name / "tinker.json").read_text())
        for name in ("v0000", status.adapter.name)
    ]
    before, after = (scores(server, pointer) for pointer in pointers)
    assert before[1:] != pytest.approx(after[1:], abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (AllWrong, "divided by the sum of its weights"),
        pytest.param(
            IgnoresClip,
            "ignores the gradient clip that the manifest asks for",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_server_that_computes_something_else_is_refused_and_the_verdict_kept(
    tiny_folder: Path, tmp_path: Path, wrong: type[Engine], reason: str
) -> None:
    with TinkerServer(wrong(tiny_folder)) as server:
        manifest = manifest_for(server.url, tiny_folder)
        job = client.submit(tmp_path, manifest)
        with pytest.raises(ConfigurationError, match=reason):
            open_session(job, manifest, EventLog(job.events_file), lambda: None)
    verdict = read_json(job.path / VERDICT_FILE)
    assert verdict is not None
    assert verdict["route"] == ""
    assert reason in verdict["refusal"]
    assert verdict["found"]["honours_clip"] is False
    events, _ = client.read_events(job.path)
    assert [event["kind"] for event in events] == ["connected"]


def test_a_wait_ends_when_the_job_is_to_stop(tiny_folder: Path, tmp_path: Path) -> None:
    """Behind an address that takes connections and never answers."""

    class Stop(BaseException):
        pass

    def on_wait() -> None:
        raise Stop

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        manifest = manifest_for(f"http://127.0.0.1:{deaf.getsockname()[1]}", tiny_folder)
        with pytest.raises(Stop):
            open_session(JobFolder(tmp_path), manifest, EventLog(tmp_path / "e.jsonl"), on_wait)


def test_a_manifest_says_what_such_a_server_cannot_do(tiny_folder: Path) -> None:
    good = manifest_for("http://127.0.0.1:1", tiny_folder)
    good.validate()
    warm = replace(good, objective=ObjectiveSpec(policy_temperature=0.7))
    for wrong, reason in (
        (warm, "policy_temperature: 0.7, but the Tinker protocol computes at temperature 1"),
        (replace(good, tinker=None), "the backend tinker needs a server"),
        (replace(good, execution=ExecutionPart()), "the backend is local"),
        (replace(good, tinker=TinkerPart("ftp://x", "tiny")), "is no http"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            wrong.validate()
