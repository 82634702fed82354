"""A training of a project on a Tinker server: the loopback server of this repository, for real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

pytest.importorskip("tinker")

from orchestrator.agents import bridges  # after the skip
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.agents.services import (
    EndpointRefused,
    NewEndpoint,
    add_endpoint,
)
from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent, append
from orchestrator.jobs.execution import run_attempt
from orchestrator.runs.models import TokenRow
from orchestrator.runs.preparing import prepare
from orchestrator.trainings.checkpoints import packed, promote, start_merge
from orchestrator.trainings.errors import TrainingRefused
from tests.base import People
from tests.runs.drive import make_run
from tests.training.test_tinker import Normalises
from tests.trainings.build import NOWHERE, make_version, parts, start
from training.models import TrainingJob, TrainingState
from training.prepare import make_tiny
from training.tinker.engine import Engine
from training.tinker.server import TinkerServer

pytestmark = pytest.mark.django_db(transaction=True)
SMALLEST: dict[str, Any] = {
    "steps": 1,
    "groups": 1,
    "samples": 2,
    "evaluate_every": 0,
    "temperature": 1.0,
    "threads": 1,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    bridges.close_bridges()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


def endpoint(people: People, server: TinkerServer, folder: Path) -> ModelEndpoint:
    new = NewEndpoint(
        name="Remote",
        base_url=server.url,
        model="tiny",
        api_key="tml-secret",
        kind=EndpointKind.TINKER,
        tokenizer_path=str(folder),
    )
    return add_endpoint(actor=people.editor, project=people.project, new=new)


def attempt(job: TrainingJob) -> TrainingJob:
    assert job.job_id is not None
    run_attempt(job.job_id)
    job.refresh_from_db()
    return job


@pytest.mark.slow
def test_a_training_runs_on_a_tinker_server_from_its_rollouts_to_a_model(
    people: People, data: Path, fault_url: str, tiny: Path
) -> None:
    with TinkerServer(Engine(tiny)) as server:
        made = parts(people.project, base_url=fault_url)
        made["model"] = endpoint(people, server, tiny)
        job = attempt(start(people, made, **SMALLEST))
        assert (job.state, job.error) == (TrainingState.COMPLETED, "")
        assert "tml-secret" not in json.dumps(job.manifest)
        assert job.tinker_url == server.url
        told = Event.objects.get(stream_id=job.stream_id, kind="train.connected").payload
        assert (told["route"], told["refusal"]) == ("D", "")
        # What was trained on was sampled from the version that the step asked for.
        rows = TokenRow.objects.filter(rollout__run__training_run__training_job=job)
        assert {row.weight_version for row in rows} == {f"t{job.pk}-v0000"}
        assert all(row.logprobs and max(row.logprobs) <= 0 for row in rows)
        step = Event.objects.get(stream_id=job.stream_id, kind="train.step").payload
        assert step["rollouts"] == 2

        checkpoint = job.checkpoints.get(step=1)
        for refused in (packed, lambda c: start_merge(actor=people.editor, checkpoint=c)):
            with pytest.raises(TrainingRefused, match=f"are on {server.url}"):
                refused(checkpoint)
        model = promote(actor=people.editor, checkpoint=checkpoint, name="Trained there")
        assert (model.kind, model.base_url) == (EndpointKind.TINKER, server.url)
        assert bridges.base_of(model) == "tiny"
        assert model.secret == made["model"].secret


@pytest.mark.slow
def test_a_server_that_computes_something_else_ends_the_training_with_its_reason(
    people: People, data: Path, tiny: Path, client: Client
) -> None:
    with TinkerServer(Normalises(tiny)) as server:
        made = {**parts(people.project), "model": endpoint(people, server, tiny)}
        job = attempt(start(people, made, **SMALLEST))
    assert job.state == TrainingState.FAILED
    assert "No ECHO route is exact on this server." in job.error
    client.force_login(people.member)
    shown = client.get(reverse("web:training_job", args=[people.project.pk, job.pk]))
    page = shown.content.decode()
    assert "divided by the sum of their weights" in page
    assert "divided by the sum of its weights" in page


def test_the_page_of_a_job_says_which_route_its_server_is_trusted_with(
    people: People, tiny: Path, client: Client
) -> None:
    model = ModelEndpoint.objects.create(
        project=people.project,
        name="Remote",
        kind=EndpointKind.TINKER,
        base_url=NOWHERE,
        model="tiny",
        tokenizer_path=str(tiny),
    )
    job = start(people, {**parts(people.project), "model": model}, **SMALLEST)
    assert job.manifest["tinker"] == {
        "base_url": NOWHERE,
        "model": "tiny",
        "secret": "Remote",
        "timeout_s": 900.0,
    }
    assert NOWHERE in job.estimate["sentence"]
    client.force_login(people.member)
    address = reverse("web:training_job", args=[people.project.pk, job.pk])
    assert "Not connected yet" in client.get(address).content.decode()
    found = {
        "loss_scale": "sum",
        "honours_clip": True,
        "honours_thresholds": True,
        "merges_pending": True,
        "routes": ["C", "B"],
        "refused": {},
        "problems": [],
    }
    payload = {
        "base_url": NOWHERE,
        "model": "tiny",
        "route": "C",
        "refusal": "",
        "passed_over": {"A": "Route A is off by 40 %: the two terms do not add up there."},
        "found": found,
    }
    append(stream_id=job.stream_id, items=[NewEvent("train.connected", payload)])
    page = client.get(address).content.decode()
    assert "both terms as a loss that runs here" in page
    assert "the two terms do not add up there" in page
    assert "merged under the loss of the first" in page


def test_what_such_a_training_cannot_be_is_said_before_it_starts(
    people: People, data: Path, tiny: Path
) -> None:
    with TinkerServer(Engine(tiny)) as server:
        made = {**parts(people.project), "model": endpoint(people, server, tiny)}
        with pytest.raises(EndpointRefused, match="does not train 'huge'; it has tiny"):
            add_endpoint(
                actor=people.editor,
                project=people.project,
                new=NewEndpoint(
                    "Huge", server.url, "huge", kind=EndpointKind.TINKER, tokenizer_path=str(tiny)
                ),
            )
    with pytest.raises(TrainingRefused, match="set the sampling temperature to 1"):
        start(people, made, **{**SMALLEST, "temperature": 0.7})
    with pytest.raises(TrainingRefused, match="a Tinker server trains adapters"):
        start(people, made, **SMALLEST, full_weights=True)
    with pytest.raises(EndpointRefused, match=r"has no tokenizer\.json"):
        add_endpoint(
            actor=people.editor,
            project=people.project,
            new=NewEndpoint(
                "Other", NOWHERE, "tiny", kind=EndpointKind.TINKER, tokenizer_path=str(data)
            ),
        )


def test_a_run_at_another_temperature_is_refused_before_a_bridge_is_started(
    people: People, tiny: Path
) -> None:
    model = ModelEndpoint.objects.create(
        project=people.project,
        name="Remote",
        kind=EndpointKind.TINKER,
        base_url=NOWHERE,
        model="tiny",
        tokenizer_path=str(tiny),
    )
    run = make_run(
        people.project,
        version=make_version(people.project),
        model=model,
        sampling={"temperature": 0.7},
    )
    with pytest.raises(ValueError, match=r"temperature 0\.7, but Remote is on a Tinker server"):
        prepare(run)
    assert not bridges._bridges
