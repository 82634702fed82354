"""What solves a task is seen by editors, and only on train tasks."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.models import User
from tests.base import People
from tests.web.build import FILE_TEXT, SECRET, make_environment


def html_of(user: User, version: EnvironmentVersion, key: str) -> str:
    client = Client()
    client.force_login(user)
    environment = version.environment
    url = reverse("web:task", args=[environment.project_id, environment.slug, version.number, key])
    return client.get(url).content.decode()


@pytest.mark.parametrize("key", ["test-0001", "select-0001"])
def test_nobody_sees_what_solves_a_sealed_task(people: People, key: str) -> None:
    version = make_environment(people.project)
    people.owner.is_superuser = True
    people.owner.save()
    for user in (people.owner, people.editor, people.member):
        html = html_of(user, version, key)
        assert SECRET not in html
        assert FILE_TEXT.strip() not in html
        assert "Sealed" in html


def test_editors_see_files_and_reference_of_a_train_task(people: People) -> None:
    html = html_of(people.editor, make_environment(people.project), "train-0001")
    assert FILE_TEXT.strip() in html
    assert SECRET in html


def test_viewers_do_not(people: People) -> None:
    html = html_of(people.member, make_environment(people.project), "train-0001")
    assert FILE_TEXT.strip() not in html
    assert SECRET not in html


def test_no_list_shows_an_answer(people: People) -> None:
    version = make_environment(people.project)
    client = Client()
    client.force_login(people.owner)
    url = reverse("web:environment", args=[people.project.pk, version.environment.slug])
    assert SECRET not in client.get(url).content.decode()
