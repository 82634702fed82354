"""A worker that dies while its training ends leaves nothing waiting for ever."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job
from orchestrator.trainings.scheduling import schedule
from tests.base import People
from tests.doubles.trainer import write_interpreter
from tests.runs.conftest import MakeModel
from tests.runs.drive import FINISH
from tests.trainings.build import parts, start
from training.models import TrainingJob, TrainingState

pytestmark = pytest.mark.django_db(transaction=True)


class Killed(BaseException):
    """As SIGKILL: nothing in the product catches it."""


def test_the_device_goes_to_the_next_job_with_the_end_of_the_one_before(
    people: People,
    data: Path,
    fault_url: str,
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = parts(people.project, base_url=fault_url, model_url=make_model(lambda asked: FINISH).url)
    first, second = (start(people, made, interpreter=write_interpreter(data)) for _ in range(2))
    assert first.job_id is not None
    kills = iter([True])

    def dies_once() -> list[TrainingJob]:
        if next(kills, False):
            raise Killed
        return schedule()

    monkeypatch.setattr("orchestrator.trainings.keeper.schedule", dies_once)
    with pytest.raises(Killed):
        run_attempt(first.job_id)
    Job.objects.filter(pk=first.job_id).update(lease_until=timezone.now() - timedelta(seconds=1))
    run_attempt(first.job_id)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, first.device) == (TrainingState.COMPLETED, "")
    assert (second.device, second.job is not None) == ("cpu", True)
