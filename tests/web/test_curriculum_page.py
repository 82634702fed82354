"""The page of curricula: estimates per task or group, sorted as asked, for those who may look."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.environments.curriculum.store import draw, observe, open_curriculum
from orchestrator.environments.models import Curriculum, EnvironmentVersion
from tests.base import People
from tests.web.build import make_climb, make_environment

pytestmark = pytest.mark.django_db


def address(people: People, version: EnvironmentVersion) -> str:
    return reverse("web:environment_curriculum", args=[people.project.pk, version.environment.slug])


def page(client: Client, people: People, version: EnvironmentVersion, query: str = "") -> str:
    response = client.get(f"{address(people, version)}{query}")
    assert response.status_code == 200
    return response.content.decode()


def make_curriculum(version: EnvironmentVersion, key: str = "climb-1-train") -> Curriculum:
    """Six tasks drawn in two steps; the later a task was drawn, the better it does."""
    curriculum = open_curriculum(version=version, key=key, kind="signal", seed=3)
    number = 0
    for step in (1, 2):
        for task in draw(curriculum=curriculum, step=step, n=3):
            for _ in range(4):
                number += 1
                observe(
                    curriculum=curriculum,
                    rollout_id=number,
                    task_id=task.pk,
                    score=number / 24,
                    cost=100 + number,
                )
    return curriculum


def test_an_environment_that_nobody_trained_in_names_the_next_step(
    client: Client, people: People
) -> None:
    client.force_login(people.member)
    html = page(client, people, make_environment(people.project))
    assert "Nothing has drawn tasks from version 1 yet" in html
    assert "train.sampler" in html and "Open the ladder" in html


def test_tasks_are_sorted_as_asked(client: Client, people: People) -> None:
    version = make_environment(people.project, tasks=6)
    make_curriculum(version)
    client.force_login(people.member)
    for sort, is_descending in (("rate", False), ("-rate", True)):
        html = page(client, people, version, f"?sort={sort}")
        body = html[html.index("<tbody>") : html.index("</tbody>")]
        rates = [float(x) for x in re.findall(r'aria-label="([\d.]+), 90 %', body)]
        assert len(rates) == 6
        assert rates == sorted(rates, reverse=is_descending)
    assert 'aria-sort="descending"' in html
    assert "climb 1, training" in html and "step 2" in html


def test_groups_and_foreign_parameters(client: Client, people: People) -> None:
    version = make_environment(people.project, tasks=6)
    make_curriculum(version, "of somebody <b>else</b>")
    client.force_login(people.member)
    html = page(client, people, version, "?by=group&sort=<script>&curriculum=x&version=9")
    assert "count lines" in html and "3 tasks" in html
    assert "<script>&" not in html and "<b>else" not in html


def test_no_sealed_task_is_listed(client: Client, people: People) -> None:
    version = make_environment(people.project, tasks=3)
    make_curriculum(version)
    client.force_login(people.member)
    html = page(client, people, version)
    assert "train-0001" in html and "test-0001" not in html and "select-0001" not in html


def test_a_stranger_sees_nothing(client: Client, people: People) -> None:
    version = make_environment(people.project)
    client.force_login(people.stranger)
    assert client.get(address(people, version)).status_code == 404


def test_a_climb_is_linked(client: Client, people: People) -> None:
    climb = make_climb(people.project)
    version = climb.environment_version
    make_curriculum(version, f"climb-{climb.pk}-train")
    client.force_login(people.member)
    link = reverse("web:climb", args=[people.project.pk, climb.pk])
    assert f'href="{link}"' in page(client, people, version)
