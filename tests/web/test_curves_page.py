"""The page that lays trainings over each other, and its figures as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from orchestrator.events.services import NewEvent, append
from orchestrator.web.training_curves import MOST_SHOWN, SECTIONS, chosen
from tests.base import People
from tests.web.training_rows import STEPS, make_sweep, make_trained_job
from training.health import BOARD
from training.models import TrainingJob

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(people: People) -> Client:
    made = Client()
    made.force_login(people.member)
    return made


def data(client: Client, people: People, query: str) -> dict[str, Any]:
    answer = client.get(f"{reverse('web:training_curves_data', args=[people.project.pk])}?{query}")
    assert answer.status_code == 200
    # What a browser reads: strict JSON, in which there is no NaN.
    return json.loads(answer.content, parse_constant=lambda name: pytest.fail(name))  # type: ignore[no-any-return]


def test_each_quantity_of_the_board_has_its_place() -> None:
    placed = [key for _, keys in SECTIONS for key in keys]
    assert sorted(placed) == sorted(chart.key for chart in BOARD)


def test_figures_are_columns_with_the_jobs_name_and_colour(client: Client, people: People) -> None:
    job = make_trained_job(people.project, name="<b>bold</b>")
    found = data(client, people, f"key=gradient&job={job.pk}&by=time")
    (each,) = found["jobs"]
    assert each["name"] == "<b>bold</b>"
    assert each["slot"] == job.pk % 10
    assert each["live"] is True
    assert each["step"] == 1  # and each next one more
    assert len(each["y"]) == len(each["s"]) == STEPS
    assert each["y"][4] is None
    assert found["crowd"]["n"] == 0


def test_the_others_are_bands(client: Client, people: People) -> None:
    first, _, _ = (make_trained_job(people.project, device="") for _ in range(3))
    found = data(client, people, f"key=reward&job={first.pk}&crowd=1")
    assert found["crowd"]["n"] == 2
    assert len({len(column) for name, column in found["crowd"].items() if name != "n"}) == 1


def test_a_chart_gets_as_many_points_as_it_asks_for(client: Client, people: People) -> None:
    job = make_trained_job(people.project)
    steps = [NewEvent("train.step", {"step": i, "reward_mean": i % 7 / 7}) for i in range(9, 500)]
    append(stream_id=job.stream_id, items=steps)
    for asked, most in (("120", 120), ("1", 100), ("99999999", 2000), ("x", 2000)):
        (each,) = data(client, people, f"key=reward&job={job.pk}&points={asked}")["jobs"]
        assert len(each["y"]) <= most
        assert each["n"] == 499
        assert max(each["y"]) == pytest.approx(6 / 7, abs=1e-4)


@pytest.mark.parametrize("query", ["", "key=secret", "key=at"])
def test_an_unknown_quantity_is_not_found(client: Client, people: People, query: str) -> None:
    url = reverse("web:training_curves_data", args=[people.project.pk])
    assert client.get(f"{url}?{query}").status_code == 404


def test_the_page_names_the_jobs_and_their_last_values(client: Client, people: People) -> None:
    job = make_trained_job(people.project, name="Learn <files>")
    data(client, people, f"key=reward&job={job.pk}")
    page = client.get(reverse("web:training_curves", args=[people.project.pk])).content.decode()
    assert "Learn &lt;files&gt;" in page
    assert "0.64" in page  # the reward of the eighth step, in the table
    for chart in BOARD:
        assert f'data-plot="{chart.key}"' in page


def test_an_empty_project_says_what_to_do(client: Client, people: People) -> None:
    url = reverse("web:training_curves", args=[people.project.pk])
    assert "Editors start one" in client.get(url).content.decode()
    client.force_login(people.editor)
    assert "Start a training" in client.get(url).content.decode()


def test_the_address_chooses_and_no_choice_is_the_newest(people: People) -> None:
    jobs = [make_trained_job(people.project, device="") for _ in range(2)]
    sweep = make_sweep(people)
    listed = list(TrainingJob.objects.filter(project=people.project).order_by("-pk"))
    assert chosen(QueryDict(""), listed) == [jobs[1].pk, jobs[0].pk]  # of the sweep none has a step
    assert chosen(QueryDict(f"job={jobs[0].pk}&job=x&job=999999"), listed) == [jobs[0].pk]
    assert chosen(QueryDict("none="), listed) == []
    assert len(chosen(QueryDict(f"sweep={sweep.pk}"), listed)) == sweep.jobs.count()
    many = [TrainingJob(pk=pk, step=1) for pk in range(1, 100)]
    asked = QueryDict("&".join(f"job={pk}" for pk in range(1, 100)))
    assert len(chosen(asked, many)) == MOST_SHOWN
