"""The page of checks: who may start one, what it shows, and that foreign text stays text."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.environments.conformance.catalogue import CATALOGUE
from orchestrator.environments.conformance.services import check_environment
from orchestrator.environments.models import (
    CheckResult,
    CheckState,
    EnvironmentCheck,
    EnvironmentVersion,
)
from tests.base import People
from tests.web.build import make_environment

pytestmark = pytest.mark.django_db


@pytest.fixture
def version(people: People) -> EnvironmentVersion:
    return make_environment(people.project)


def page(client: Client, people: People, version: EnvironmentVersion, query: str = "") -> str:
    url = reverse("web:environment_checks", args=[people.project.pk, version.environment.slug])
    response = client.get(f"{url}{query}")
    assert response.status_code == 200
    return response.content.decode()


def make_check(version: EnvironmentVersion, **statuses: str) -> EnvironmentCheck:
    check = EnvironmentCheck.objects.create(
        version=version, n_total=len(CATALOGUE), state=CheckState.COMPLETED
    )
    for check_id, status in statuses.items():
        CheckResult.objects.create(
            check_run=check,
            check_id=check_id,
            status=status,
            measured={"reset_s": 0.2, "paths": ["<b>state.x</b>"]},
            evidence="<script>alert(1)</script>\u202e in state.answer",
            remediation="Do this.",
        )
    return check


def test_a_version_that_was_never_checked_names_the_next_step(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    client.force_login(people.editor)
    html = page(client, people, version)
    assert "was never checked" in html and "Check environment" in html
    client.force_login(people.member)
    html = page(client, people, version)
    assert "Check environment</button>" not in html and "An editor of the project" in html


def test_a_report_has_words_measures_and_what_to_do(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    make_check(version, startup="pass", canary_floor="fail", seed_control="warn")
    client.force_login(people.member)
    html = page(client, people, version)
    assert "1 check failed" in html
    assert "Doing nothing pays nothing" in html and "What to do:</b> Do this." in html
    assert "reset s" in html and "0.2" in html
    assert "not made" in html, "checks without a result say so"


def test_foreign_text_stays_text(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    make_check(version, no_solution_leakage="fail")
    client.force_login(people.member)
    html = page(client, people, version)
    assert "<script>alert" not in html and "<b>state.x" not in html and "\u202e" not in html
    assert "state.answer" in html


def test_a_check_that_is_made_shows_its_progress(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    check = check_environment(actor=people.editor, version=version)
    client.force_login(people.editor)
    html = page(client, people, version)
    assert "data-running" in html and "Cancel check" in html and "to come" in html
    client.post(
        reverse("web:check_cancel", args=[people.project.pk, version.environment.slug, check.pk])
    )
    check.refresh_from_db()
    assert check.state == CheckState.CANCELLED
    assert "data-running" not in page(client, people, version)


def test_older_reports_stay(client: Client, people: People, version: EnvironmentVersion) -> None:
    old = make_check(version, canary_floor="fail")
    make_check(version, canary_floor="pass")
    client.force_login(people.member)
    assert "checked</span>" in page(client, people, version)
    assert 'data-status="fail"' in page(client, people, version, f"?check={old.pk}")


def test_who_may_start_and_cancel(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    start = reverse("web:check_start", args=[people.project.pk, version.environment.slug])
    for user, status in ((people.stranger, 404), (people.member, 403), (people.editor, 302)):
        client.force_login(user)
        assert client.post(start, {"version": "1"}).status_code == status
    check = version.checks.get()
    cancel = reverse(
        "web:check_cancel", args=[people.project.pk, version.environment.slug, check.pk]
    )
    for user, status in ((people.stranger, 404), (people.member, 403), (people.editor, 302)):
        client.force_login(user)
        assert client.post(cancel).status_code == status


def test_the_environments_wear_their_badges(
    client: Client, people: People, version: EnvironmentVersion
) -> None:
    client.force_login(people.member)
    pages = [
        reverse("web:environments", args=[people.project.pk]),
        reverse("web:environment", args=[people.project.pk, version.environment.slug]),
    ]
    assert all("never checked" in client.get(url).content.decode() for url in pages)
    make_check(version, canary_floor="fail", startup="fail")
    assert all("2 checks failed" in client.get(url).content.decode() for url in pages)
