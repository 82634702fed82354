"""The Network page, and the marks of isolation on runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.environments.models import (
    EgressDecision,
    Environment,
    EnvironmentKind,
    EnvironmentVersion,
)
from tests.base import People
from tests.web.build import make_environment, make_rollout, make_run, tasks_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def version(people: People) -> EnvironmentVersion:
    version = make_environment(people.project)
    version.resources = {
        "network": {"mode": "allow-list", "allowed_hosts": ["api.example.org", "*.data.example"]}
    }
    version.save()
    return version


def decide(version: EnvironmentVersion, host: str, **fields: Any) -> None:
    EgressDecision.objects.create(
        **{
            "version": version, "at": datetime(2026, 11, 29, 12, tzinfo=UTC), "host": host,
            "port": 443, "method": "CONNECT", "action": "deny",
            "reason": "not on the allow-list", **fields,
        }
    )  # fmt: skip


def get(client: Client, people: People, version: EnvironmentVersion, query: str = "") -> str:
    url = reverse("web:environment_network", args=[people.project.pk, version.environment.slug])
    response = client.get(f"{url}{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_it_shows_names_and_decisions(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    client.force_login(people.member)
    html = get(client, people, version)
    assert "only these names" in html and "*.data.example" in html
    assert "Nothing was asked for" in html
    decide(version, "<script>alert(1)</script>\u202e")
    decide(version, "api.example.org", action="allow", reason="")
    html = get(client, people, version)
    assert "<script>alert" not in html and "\u202e" not in html
    assert "allowed" in html and "not on the allow-list" in html


def test_it_filters_and_pages(client: Client, people: People, version: EnvironmentVersion) -> None:
    client.force_login(people.member)
    for number in range(60):
        decide(version, f"h{number}.example", action="allow" if number == 7 else "deny")
    html = get(client, people, version)
    assert "h59.example" in html and "h9.example" not in html and "Older" in html
    before = EgressDecision.objects.get(host="h10.example").pk
    html = get(client, people, version, f"?before={before}")
    assert "h9.example" in html and "h10.example" not in html and "Newest" in html
    html = get(client, people, version, "?action=allow")
    assert "h7.example" in html and "h8.example" not in html
    assert "No decision matches" in get(client, people, version, "?host=nowhere")
    assert get(client, people, version, "?before=x&action=y&version=z")


@pytest.mark.parametrize(
    ("kind", "network", "words"),
    [
        (EnvironmentKind.TERMINAL, {}, "no network"),
        (EnvironmentKind.TERMINAL, {"network": {"mode": "open"}}, "open network"),
        (EnvironmentKind.URL, {}, "not ours to limit"),
        (EnvironmentKind.QA, {}, "no code runs"),
        (EnvironmentKind.SQL, {}, "no code runs"),
    ],
)
def test_each_mode_has_its_words(
    client: Client, people: People, kind: str, network: dict[str, Any], words: str
) -> None:
    version = make_environment(people.project)
    version.resources = network
    version.save()
    Environment.objects.filter(pk=version.environment_id).update(kind=kind)
    client.force_login(people.member)
    assert words in get(client, people, version)


def test_an_environment_without_a_version_names_the_next_step(
    client: Client, people: People
) -> None:
    environment = Environment.objects.create(project=people.project, slug="fresh", name="Fresh")
    client.force_login(people.editor)
    url = reverse("web:environment_network", args=[people.project.pk, environment.slug])
    assert "No version yet" in client.get(url).content.decode()


def test_a_stranger_sees_nothing(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    url = reverse("web:environment_network", args=[people.project.pk, version.environment.slug])
    assert client.get(url).status_code == 302
    client.force_login(people.stranger)
    assert client.get(url).status_code == 404


def test_the_number_of_queries_is_fixed(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    client.force_login(people.member)

    def count() -> int:
        with CaptureQueriesContext(connection) as captured:
            get(client, people, version)
        return len(captured)

    decide(version, "a.example")
    first = count()
    for number in range(20):
        decide(version, f"h{number}.example")
    assert count() == first


WEAK = {"mode": "unsandboxed", "is_weak": True, "reason": "Commands run without isolation."}


@pytest.mark.parametrize(
    ("isolation", "mark"),
    [
        (WEAK, "not isolated"),
        ({"mode": "bubblewrap", "is_weak": True, "reason": "Open."}, "open network"),
        ({"mode": "remote", "is_weak": False, "reason": "Not ours."}, "remote server"),
    ],
)
def test_runs_carry_the_mark_wherever_they_are_shown(
    client: Client, people: People, isolation: dict[str, Any], mark: str
) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    run.isolation = isolation
    run.warnings = [{"code": "check.never", "text": "Never checked <b>at all</b>."}]
    run.save()
    client.force_login(people.member)
    project = people.project.pk
    for url in (
        reverse("web:runs", args=[project]),
        reverse("web:run", args=[project, run.pk]),
        reverse("web:rollout", args=[project, rollout.pk]),
    ):
        html = client.get(url).content.decode()
        assert mark in html and "1 warning" in html, url
    html = client.get(reverse("web:run", args=[project, run.pk])).content.decode()
    assert "Never checked &lt;b&gt;" in html and "<b>at all" not in html
    assert (isolation["reason"] in html) is True


def test_a_run_in_the_sandbox_carries_none(client: Client, people: People) -> None:
    run = make_run(people.project)
    run.isolation = {"mode": "bubblewrap", "is_weak": False, "reason": "A sandbox."}
    run.save()
    client.force_login(people.member)
    html = client.get(reverse("web:run", args=[people.project.pk, run.pk])).content.decode()
    assert "not isolated" not in html and "in mind" not in html
