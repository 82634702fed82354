"""Trainings of every weight: what they begin with, and what can be done with their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.trainings import checkpoints
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.lens import command_of
from tests.base import People
from tests.trainings.build import parts, start
from training.models import Checkpoint, TrainingJob

pytestmark = pytest.mark.django_db(transaction=True)


def whole_checkpoint(job: TrainingJob) -> Checkpoint:
    """As the keeper records one whose files are kept."""
    folder = Path(job.folder) / "publish" / "v0001"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    return Checkpoint.objects.create(training_job=job, step=1, path=str(folder))


@pytest.fixture
def made(people: People) -> dict[str, Any]:
    return parts(people.project)


def test_the_manifest_says_that_every_weight_is_trained(
    people: People, made: dict[str, Any]
) -> None:
    job = start(people, made, full_weights=True)
    assert job.manifest["lora"] is None
    assert job.trains_every_weight
    assert not start(people, made).trains_every_weight


def test_a_whole_model_is_promoted_and_neither_merged_nor_packed(
    people: People, made: dict[str, Any]
) -> None:
    checkpoint = whole_checkpoint(start(people, made, full_weights=True))
    with pytest.raises(TrainingRefused, match="Nothing to merge"):
        checkpoints.start_merge(actor=people.editor, checkpoint=checkpoint)
    with pytest.raises(TrainingRefused, match="too large to pack"):
        checkpoints.packed(checkpoint)
    model = checkpoints.promote(actor=people.editor, checkpoint=checkpoint, name="whole")
    assert model.adapter_path == checkpoint.path

    # The next training of every weight begins with it; one of an adapter cannot be sampled.
    following = start(people, {**made, "model": model}, full_weights=True)
    assert following.manifest["model"]["folder"] == checkpoint.path
    assert following.manifest["model"]["initial_adapter"] is None
    with pytest.raises(TrainingRefused, match="Train every weight"):
        start(people, {**made, "model": model})


def test_tokens_are_looked_at_with_the_whole_model_or_with_an_adapter_on_its_base(
    people: People, made: dict[str, Any]
) -> None:
    whole = whole_checkpoint(start(people, made, full_weights=True))
    assert command_of(whole)[3:] == ["--model", whole.path]
    adapter = whole_checkpoint(start(people, made))
    base = adapter.training_job.manifest["model"]["folder"]
    assert command_of(adapter)[3:] == ["--model", base, "--adapter", adapter.path]


def test_training_every_weight_does_not_begin_with_an_adapter(
    people: People, made: dict[str, Any], tmp_path: Path
) -> None:
    made["model"].adapter_path = str(tmp_path)
    made["model"].save()
    with pytest.raises(TrainingRefused, match="is an adapter"):
        start(people, made, full_weights=True)
    assert start(people, made).manifest["model"]["initial_adapter"] == str(tmp_path)


def test_the_page_names_the_folder_and_offers_no_adapter(
    people: People, made: dict[str, Any], client: Client
) -> None:
    job = start(people, made, full_weights=True)
    checkpoint = whole_checkpoint(job)
    client.force_login(people.editor)
    page = client.get(reverse("web:training_job", args=[people.project.pk, job.pk]))
    text = page.content.decode()
    assert checkpoint.path in text
    assert "Promote step 1" in text
    assert "Merge step 1" not in text
    assert "adapter.zip" not in text


def test_the_form_offers_it(people: People, made: dict[str, Any], client: Client) -> None:
    client.force_login(people.editor)
    address = reverse("web:training_new", args=[people.project.pk])
    given = {
        "version": made["environment_version"].pk,
        "rubric": made["rubric_version"].pk,
        "model": made["model"].pk,
        "harness": made["harness"].pk,
        "full_weights": "on",
    }
    page = client.get(address)
    form = page.context["form"]
    fields = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    answer = client.post(address, {**fields, **given, "device": "cpu"})
    assert answer.status_code == 302, answer.context["form"].errors
    assert TrainingJob.objects.get().trains_every_weight
