"""List pages ask the database a fixed number of times, however many rows there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.projects.models import Project
from tests.base import People
from tests.web.build import (
    make_climb,
    make_environment,
    make_rollout,
    make_rubric,
    make_run,
    make_training_job,
    tasks_of,
)

FRAME = 8
"""Session, user, project, role (in access and in the frame), projects, rail counts, workers."""


def queries(client: Client, url: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


def fill_runs(project: Project) -> None:
    run = make_run(project)
    for task in tasks_of(run):
        make_rollout(run, task)


@pytest.mark.parametrize(
    ("name", "fill", "own"),
    [
        ("runs", fill_runs, 3),
        ("climbs", make_climb, 3),
        ("environments", make_environment, 6),
        ("rubrics", make_rubric, 3),
        ("training", make_training_job, 9),
        ("overview", make_climb, 21),
    ],
)
def test_the_number_of_queries_is_fixed(
    people: People, name: str, fill: Callable[[Project], object], own: int
) -> None:
    client = Client()
    client.force_login(people.owner)
    url = reverse(f"web:{name}", args=[people.project.pk])
    fill(people.project)
    few = queries(client, url)
    for _ in range(4):
        fill(people.project)
    assert queries(client, url) == few
    assert few <= FRAME + own


def test_a_run_with_many_rollouts_asks_as_often_as_one_with_few(people: People) -> None:
    client = Client()
    client.force_login(people.owner)
    run = make_run(people.project)
    url = reverse("web:run", args=[people.project.pk, run.pk])
    tasks = tasks_of(run)
    make_rollout(run, tasks[0])
    few = queries(client, url)
    for replicate in range(1, 30):
        make_rollout(run, tasks[0], replicate=replicate)
    assert queries(client, url) == few <= FRAME + 8
