"""A training over hosts that share a database and a store of blobs, and no disk."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.endpoints import endpoint_of
from orchestrator.runs.models import Purpose, Run
from orchestrator.trainings.checkpoints import packed, promote
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.folders import is_shared
from orchestrator.trainings.queries import checkpoints_of
from orchestrator.trainings.services import resume_training
from tests.base import People
from tests.doubles.trainer import write_interpreter
from tests.runs.conftest import MakeModel
from tests.runs.drive import FINISH, assert_gapless
from tests.trainings.build import parts, start
from tests.trainings.test_keeper import attempt, told
from training.models import TrainingState

pytestmark = pytest.mark.django_db(transaction=True)


def test_another_host_goes_on_and_a_third_serves_the_weights(
    people: People, data: Path, fault_url: str, make_model: MakeModel, settings: Any
) -> None:
    settings.BLOBS = str(data / "store")
    settings.DATA_DIR = data / "one"
    model = make_model(lambda _: FINISH)
    made = parts(people.project, base_url=fault_url, model_url=model.url)
    job = attempt(
        start(
            people,
            made,
            interpreter=write_interpreter(data, "collapses"),
            steps=7,
            groups=1,
            evaluate_every=0,
        )
    )
    assert (job.state, job.step) == (TrainingState.QUEUED, 6)

    shutil.rmtree(data / "one")  # that host is gone
    settings.DATA_DIR = data / "two"
    resume_training(actor=people.editor, job=job)
    job.refresh_from_db()
    job = attempt(job)
    assert (job.state, job.error, job.step) == (TrainingState.COMPLETED, "", 7)
    assert [step["step"] for step in told(job, "train.step")] == [1, 2, 3, 4, 5, 6, 7]
    assert Run.objects.filter(purpose=Purpose.TRAIN).count() == 7, "nothing was sampled twice"
    assert_gapless()

    shutil.rmtree(data / "two")
    settings.DATA_DIR = data / "three"
    last, *_ = checkpoints_of(job)
    assert (last.checkpoint.step, last.is_kept) == (7, True)
    name = "v0007/adapter_model.safetensors"
    with zipfile.ZipFile(io.BytesIO(packed(last.checkpoint))) as archive:
        assert archive.read(name) == b"weights of step 7"
    shutil.rmtree(data / "three")
    promoted = promote(actor=people.editor, checkpoint=last.checkpoint, name="Better")
    assert not (data / "three").exists(), "a promotion moves no bytes"
    found = Path(endpoint_of(promoted).adapter_path)
    assert found == data / "three" / "training" / str(job.pk) / "publish" / "v0007"
    assert (found / "adapter_model.safetensors").read_bytes() == b"weights of step 7"


def test_weights_that_nobody_has_are_refused_with_the_reason(
    people: People, data: Path, fault_url: str, make_model: MakeModel, settings: Any
) -> None:
    model = make_model(lambda _: FINISH)
    made = parts(people.project, base_url=fault_url, model_url=model.url)
    interpreter = write_interpreter(data)
    job = attempt(start(people, made, interpreter=interpreter, steps=1, evaluate_every=0))
    shutil.rmtree(job.folder)
    (row,) = checkpoints_of(job)
    assert not row.is_kept
    with pytest.raises(TrainingRefused, match="not kept"):
        packed(row.checkpoint)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("manifest.json", True),
        ("checkpoints/LATEST", True),
        ("checkpoints/step-000001/state.json", True),
        ("publish/v0001/adapter_model.safetensors", True),
        ("checkpoints/.writing-step-000002-77/state.json", False),
        ("rows/step-000001.jsonl", False),
        ("need/step-000001.json", False),
        ("runner.log", False),
        ("done.json", False),
        ("merged/v0001/model.safetensors", False),
    ],
)
def test_what_other_hosts_get(name: str, expected: bool) -> None:
    assert is_shared(name) is expected
