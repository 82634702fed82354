"""The pages of Train: the queue, a job's board, steps and groups, checkpoints, sweeps, the form."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.models import ModelEndpoint
from orchestrator.jobs.models import Job
from orchestrator.trainings.keeper import adapter_name
from orchestrator.web.training_board import board
from tests.base import People
from tests.web.build import make_harness, make_run
from tests.web.training_rows import make_sweep, make_trained_job
from training.health import BOARD, Mark
from training.models import Checkpoint, Sweep, TrainingAlarm, TrainingJob, TrainingQuota

pytestmark = pytest.mark.django_db

PAGES = {
    "training",
    "training_curves",
    "training_curves_data",
    "training_job",
    "training_step",
    "training_group",
    "training_sweep",
}
FOR_EDITORS = {"training_new"}
WRITES = {
    *("training_action", "training_priority", "training_quota", "training_alarm"),
    *("training_sweep_cancel", "checkpoint_promote", "checkpoint_merge", "checkpoint_download"),
}


@pytest.fixture(autouse=True)
def data(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    settings.TRAINING_DEVICES = ["cpu"]
    return tmp_path


@pytest.fixture
def job(people: People, data: Path) -> TrainingJob:
    made = make_trained_job(people.project, data / "job")
    folder = data / "job" / "publish" / "v0004"
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "adapter_config.json").write_text("{}")
    return made


def client_of(people: People, who: str = "editor") -> Client:
    client = Client()
    client.force_login(getattr(people, who))
    return client


def url(name: str, people: People, *arguments: object) -> str:
    return reverse(f"web:{name}", args=[people.project.pk, *arguments])


def text_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status, address
    return response.content.decode()


def pages_of(people: People, job: TrainingJob) -> dict[str, str]:
    return {
        "training": url("training", people),
        "training_curves": url("training_curves", people),
        "training_curves_data": f"{url('training_curves_data', people)}?key=reward&job={job.pk}",
        "training_job": url("training_job", people, job.pk),
        "training_step": url("training_step", people, job.pk, 3),
        "training_group": url("training_group", people, job.pk, 3, "train-0001"),
        "training_sweep": url("training_sweep", people, make_sweep(people).pk),
        "checkpoint_download": url("checkpoint_download", people, job.pk, 4),
    }


def test_members_read_every_page_and_strangers_none(people: People, job: TrainingJob) -> None:
    pages = pages_of(people, job)
    assert set(pages) >= PAGES
    member, stranger = client_of(people, "member"), client_of(people, "stranger")
    for address in pages.values():
        assert member.get(address).status_code == 200
        assert stranger.get(address).status_code == 404
        assert Client().get(address).status_code == 302
    new = url("training_new", people)
    assert member.get(new).status_code == 403
    assert stranger.get(new).status_code == 404


def test_viewers_change_nothing(people: People, job: TrainingJob) -> None:
    alarm, sweep = TrainingAlarm.objects.get(), make_sweep(people)
    writes = [
        url("training_action", people, job.pk, "cancel"),
        url("training_priority", people, job.pk),
        url("training_alarm", people, job.pk, alarm.pk),
        url("training_sweep_cancel", people, sweep.pk),
        url("checkpoint_promote", people, job.pk, 4),
        url("checkpoint_merge", people, job.pk, 4),
        url("training_quota", people),
    ]
    member, stranger, editor = (client_of(people, w) for w in ("member", "stranger", "editor"))
    for address in writes:
        assert member.post(address).status_code == 403, address
        assert stranger.post(address).status_code == 404, address
        assert editor.get(address).status_code == 405, address
    assert editor.post(url("training_quota", people), {"max_running": 1}).status_code == 403


def test_the_board_marks_each_chart_and_draws_a_skipped_step_as_a_gap(
    people: People, job: TrainingJob
) -> None:
    page = text_of(client_of(people), url("training_job", people, job.pk))
    assert "Needs a look" in page or "Mostly healthy, but" in page
    assert "Skipped 1, the last one step 5" in page
    assert page.count('class="gapmark"') == 1
    assert "1 step without a finite value" in page
    for chart in BOARD[:3]:
        assert chart.healthy.replace("'", "&#x27;") in page
    # A point leads to its rollouts, by pointer and by keyboard.
    step = url("training_step", people, job.pk, 3)
    assert page.count(f'href="{step}"') >= 3
    assert "12% of rollouts write role markers" in page
    assert "4 min to 9 min" in page


def test_a_step_shows_its_groups_and_what_they_teach(people: People, job: TrainingJob) -> None:
    page = text_of(client_of(people), url("training_step", people, job.pk, 3))
    assert page.index("train-0001") < page.index("train-0002")  # what teaches comes first
    assert "all wrong: nothing to tell apart" in page
    assert page.count('class="sib err"') == 3
    zero = text_of(client_of(people), url("training_step", people, job.pk, 0))
    assert "before training" in zero
    text_of(client_of(people), url("training_step", people, job.pk, 99), status=404)


def test_a_group_shows_siblings_with_advantages_and_their_first_difference(
    people: People, job: TrainingJob
) -> None:
    client = client_of(people)
    page = text_of(client, url("training_group", people, job.pk, 2, "train-0001"))
    assert "first do different things in turn 1" in page
    # Rewards 1, 0, 1, centred.
    assert page.count("A +0.33") == 2
    assert "A −0.67" in page
    assert page.count('class="diverges"') == 1
    alike = text_of(client, url("training_group", people, job.pk, 2, "train-0002"))
    assert "All siblings did the same" in alike
    assert alike.count("A ±0.00") == 3
    text_of(client, url("training_group", people, job.pk, 2, "nowhere"), status=404)


def test_the_map_counts_groups_without_spread(people: People, job: TrainingJob) -> None:
    page = text_of(client_of(people), url("training_job", people, job.pk))
    assert 'aria-label="Map of groups"' in page
    assert page.count('class="gmark spread" href') == 8
    assert page.count('class="gmark fail" href') == 8


def test_a_checkpoint_becomes_a_model_a_zip_and_a_merge(people: People, job: TrainingJob) -> None:
    client = client_of(people)
    packed = client.get(url("checkpoint_download", people, job.pk, 4))
    names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    assert names == ["v0004/adapter_config.json", "v0004/adapter_model.safetensors"]

    client.post(url("checkpoint_promote", people, job.pk, 4), {"name": "Files, step 4"})
    model = ModelEndpoint.objects.get(name="Files, step 4")
    assert endpoint_of(model).model == adapter_name(job, "v0004")
    assert endpoint_of(model).adapter_path.endswith("v0004")
    assert Checkpoint.objects.get(training_job=job, step=4).promoted_as == model
    again = client.post(
        url("checkpoint_promote", people, job.pk, 4), {"name": "Files, step 4"}, follow=True
    )
    assert "has a model called" in again.content.decode()

    client.post(url("checkpoint_merge", people, job.pk, 4))
    client.post(url("checkpoint_merge", people, job.pk, 4))
    assert Job.objects.filter(kind="training.merge").count() == 1
    gone = client.post(url("checkpoint_merge", people, job.pk, 2), follow=True)
    assert "The weights of step 2 are not kept" in gone.content.decode()


def test_a_training_is_estimated_and_started_by_the_form(people: People) -> None:
    run = make_run(people.project)
    given = {
        "name": "By hand",
        "version": run.environment_version_id,
        "rubric": run.rubric_version_id,
        "model": run.model_id,
        "harness": make_harness(people.project).pk,
        **{"steps": 4, "groups": 2, "samples": 2, "lambdas": "0.05", "seeds": "0"},
        **{"env_normalisation": "global_tokens", "advantage": "centre", "learning_rate": "1e-4"},
        **{"lora_rank": 8, "temperature": "0.7", "evaluate_every": 2, "evaluate_rollouts": 3},
        **{"priority": 0, "device": "cpu"},
    }
    client, address = client_of(people), url("training_new", people)
    estimated = client.post(address, {**given, "estimate": "1"})
    assert estimated.status_code == 200
    assert "no model to train there" in estimated.content.decode()
    assert not TrainingJob.objects.exists()
    started = client.post(address, given)
    job = TrainingJob.objects.get()
    assert started["Location"] == url("training_job", people, job.pk)
    assert (job.name, job.total_steps, job.device) == ("By hand", 4, "cpu")

    swept = client.post(address, {**given, "lambdas": "0, 0.05", "seeds": "0, 1"})
    sweep = Sweep.objects.get()
    assert swept["Location"] == url("training_sweep", people, sweep.pk)
    assert sweep.jobs.count() == 4
    wrong = client.post(address, {**given, "lambdas": "much", "seeds": "-1"})
    assert wrong.status_code == 422
    assert "&#x27;much&#x27; is not a number from 0 up." in wrong.content.decode()


def test_the_queue_says_why_and_takes_a_priority(people: People) -> None:
    sweep = make_sweep(people)
    client = client_of(people)
    page = text_of(client, url("training", people))
    first, *rest = sweep.jobs.order_by("id")
    assert f"cpu has job {first.pk}." in page
    last = rest[-1]
    client.post(url("training_priority", people, last.pk), {"priority": "5"})
    last.refresh_from_db()
    assert last.priority == 5
    page = text_of(client, url("training", people))
    assert page.index(f"priority-{last.pk}") < page.index(f"priority-{rest[0].pk}")
    refused = client.post(
        url("training_priority", people, last.pk), {"priority": "much"}, follow=True
    )
    assert "A priority is from -10 to 10." in refused.content.decode()
    client_of(people, "owner").post(
        url("training_quota", people), {"max_running": "1", "minutes": ""}
    )
    assert TrainingQuota.objects.get().max_running == 1
    client.post(url("training_sweep_cancel", people, sweep.pk))
    assert "is compared" in text_of(client, url("training_sweep", people, sweep.pk))


def test_an_alarm_is_acknowledged_and_a_paused_job_goes_on(
    people: People, job: TrainingJob
) -> None:
    client, alarm = client_of(people), TrainingAlarm.objects.get()
    client.post(url("training_alarm", people, job.pk, alarm.pk))
    alarm.refresh_from_db()
    assert alarm.acknowledged_by == people.editor
    client.post(url("training_action", people, job.pk, "pause"))
    page = text_of(client, url("training_job", people, job.pk))
    assert "Let it go on" in page
    client.post(url("training_action", people, job.pk, "resume"))
    job.refresh_from_db()
    assert job.pause_reason == ""


def test_a_board_without_numbers_is_grey_and_one_nan_blanks_nothing() -> None:
    assert board([], [], 4) is None
    steps = [{"step": i, "reward_mean": float("nan") if i == 2 else 0.5} for i in range(1, 4)]
    made = board(steps, [], 4)
    assert made is not None
    assert made.verdict.mark is Mark.GREY
    assert [each.chart.key for each in made.charts] == ["reward"]
    assert made.charts[0].gaps == 1
    assert len(made.charts[0].dots) == 2
