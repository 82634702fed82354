"""The ledger's page, and a checkpoint's look from asking to its end."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job
from orchestrator.jobs.registry import JobContext
from orchestrator.runs.models import Rollout, TokenRow
from orchestrator.trainings import lens
from tests.base import People
from tests.web.training_rows import make_trained_job
from training.models import Checkpoint, TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def checkpoint(people: People, settings: Any, tmp_path: Path) -> Checkpoint:
    settings.DATA_DIR = tmp_path
    job = make_trained_job(people.project, tmp_path / "job")
    folder = tmp_path / "job" / "publish" / "v0004"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    return Checkpoint.objects.get(training_job=job, step=4)


@pytest.fixture
def rollout(checkpoint: Checkpoint) -> Rollout:
    asked = TrainingRun.objects.get(training_job=checkpoint.training_job, kind="step", step=2)
    found = asked.run.rollouts.order_by("pk")[0]
    kinds = [["context", 3], ["action", 2], ["env_output", 2]]
    TokenRow.objects.create(
        rollout=found, index=0, ids=[5, 6, 7, 8, 9, 10, 11], kinds=kinds, logprobs=[-0.25, -1.5]
    )
    return found


def client_of(people: People, who: str) -> Client:
    client = Client()
    client.force_login(getattr(people, who))
    return client


def address(name: str, rollout: Rollout) -> str:
    return reverse(f"web:{name}", args=[rollout.run.project_id, rollout.pk])


def test_the_ledger_says_what_each_token_weighs(people: People, rollout: Rollout) -> None:
    page = client_of(people, "member").get(address("rollout_ledger", rollout)).content.decode()
    assert "Trained on in step 2" in page
    assert page.count('class="heat h') == 7
    assert "lk-env_output" in page
    assert "Compute" not in page


def test_a_rollout_without_tokens_says_where_they_come_from(
    people: People, checkpoint: Checkpoint
) -> None:
    bare = Rollout.objects.filter(token_rows=None).first()
    assert bare is not None
    page = client_of(people, "member").get(address("rollout_ledger", bare)).content.decode()
    assert "No token ids are stored" in page


def test_a_look_is_queued_once_cancelled_and_asked_for_again(
    people: People, rollout: Rollout, checkpoint: Checkpoint
) -> None:
    url, editor = address("ledger_look", rollout), client_of(people, "editor")
    asked = {"checkpoint": checkpoint.pk, "before": checkpoint.pk}
    assert client_of(people, "stranger").post(url, asked).status_code == 404
    assert client_of(people, "member").post(url, asked).status_code == 403
    assert editor.get(url).status_code == 405
    for _ in range(2):
        answer = editor.post(url, asked)
        assert answer["Location"].endswith(f"?before={checkpoint.pk}")
    assert Job.objects.filter(kind=lens.LENS).count() == 1
    page = editor.get(answer["Location"]).content.decode()
    assert 'data-module="ledger"' in page
    editor.post(url, {**asked, "do": "cancel"})
    assert lens.view(rollout, checkpoint).state == "cancelled"
    assert "Try again" in editor.get(answer["Location"]).content.decode()
    editor.post(url, asked)
    assert lens.view(rollout, checkpoint).state == "queued"
    assert Job.objects.filter(kind=lens.LENS).count() == 2


def test_a_look_that_fails_says_what_the_process_said(
    people: People, rollout: Rollout, checkpoint: Checkpoint
) -> None:
    job = checkpoint.training_job
    script = Path(job.folder) / "python"
    script.write_text('#!/bin/sh\necho \'{"error": "the weights are torn"}\'\nexit 1\n')
    script.chmod(0o755)
    job.manifest["execution"]["interpreter"] = str(script)
    job.save()
    with pytest.raises(RuntimeError, match="the weights are torn"):
        lens.look(context(rollout, checkpoint))
    assert not list((Path(job.folder).parent / "lens").iterdir())


def test_a_finished_look_is_shown_from_its_file(
    people: People, rollout: Rollout, checkpoint: Checkpoint
) -> None:
    job = checkpoint.training_job
    told = {"logprobs": [None, *[-2.0] * 6], "pieces": ["a"] * 5 + ["<b>", "\n"], "index": 0}
    answer = Path(job.folder) / "answer.json"
    answer.write_text(json.dumps({"rows": [told]}))
    script = Path(job.folder) / "python"
    # The arguments end with `--out FILE`.
    script.write_text(f'#!/bin/sh\nfor last; do :; done\ncp {answer} "$last"\n')
    script.chmod(0o755)
    job.manifest["execution"]["interpreter"] = str(script)
    job.save()
    lens.look(context(rollout, checkpoint))
    assert lens.view(rollout, checkpoint).state == "done"
    page = client_of(people, "member").get(
        address("rollout_ledger", rollout), {"before": checkpoint.pk, "after": checkpoint.pk}
    )
    text = page.content.decode()
    assert "&lt;b&gt;" in text
    assert "computed" in text
    assert "Became predictable" in text


def context(rollout: Rollout, checkpoint: Checkpoint) -> JobContext:
    spec = {"rollout_id": rollout.pk, "checkpoint_id": checkpoint.pk}
    return JobContext(1, spec, Fence(1, 1), threading.Event())
