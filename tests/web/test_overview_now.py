"""The Overview says what runs, what is stuck and why, and what waits for whom."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.climbs.models import ClimbRun
from orchestrator.jobs.models import Job
from orchestrator.projects.models import User
from orchestrator.runs.models import Run
from orchestrator.web.diagnosis import LiveRun, of_run
from tests.base import People
from tests.web.build import make_climb, make_rollout, make_run, make_training_job, tasks_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def live(**fields: object) -> LiveRun:
    known: dict[str, object] = {
        "environment": "Files v1",
        "is_started": True,
        "asked_at": NOW - timedelta(hours=1),
        "pending": 0,
        "running": 3,
        "judging": 0,
        "oldest_at": NOW - timedelta(minutes=41),
        "last_ended_at": NOW - timedelta(minutes=40),
        "lease_until": NOW + timedelta(seconds=30),
    }
    return LiveRun(**{**known, **fields})  # type: ignore[arg-type] # of the fields' types


@pytest.mark.parametrize(
    ("fields", "workers", "sentence", "is_stuck"),
    [
        ({}, 1, "waits for 3 rollouts of Files v1, oldest 41 min 00 s", True),
        # Others still end: it is only slow.
        (
            {"last_ended_at": NOW - timedelta(minutes=1)},
            1,
            "waits for 3 rollouts of Files v1, oldest 41 min 00 s",
            False,
        ),
        ({"oldest_at": NOW}, 1, "waits for 3 rollouts of Files v1, oldest 0.0 s", False),
        (
            {"running": 0, "pending": 1, "oldest_at": None, "last_ended_at": None},
            1,
            "waits for a slot of Files v1: 1 rollout not started",
            True,
        ),
        ({"running": 0, "judging": 2}, 1, "2 rollouts wait for their group to be judged", False),
        ({"running": 0}, 1, "all rollouts have ended; it is about to end", False),
        ({"is_started": False}, 1, "waits for a free worker", False),
        (
            {"is_started": False, "asked_at": NOW - timedelta(minutes=5)},
            0,
            "waits for a worker since 5 min 00 s: none is there",
            True,
        ),
        (
            {"lease_until": NOW - timedelta(minutes=4)},
            1,
            "its worker has not been heard of for 4 min 00 s",
            True,
        ),
        ({"is_cancelling": True}, 1, "is being cancelled; 3 rollouts still end", False),
    ],
)
def test_a_run_says_what_it_waits_for(
    fields: dict[str, object], workers: int, sentence: str, is_stuck: bool
) -> None:
    found = of_run(live(**fields), now=NOW, workers=workers)
    assert (found.sentence.replace("\N{NO-BREAK SPACE}", " "), found.is_stuck) == (
        sentence,
        is_stuck,
    )


def overview(people: People, user: User) -> str:
    client = Client()
    client.force_login(user)
    response = client.get(reverse("web:overview", args=[people.project.pk]))
    assert response.status_code == 200
    return re.sub(r"\s+", " ", response.content.decode().replace("\N{NO-BREAK SPACE}", " "))


def stuck_run(people: People) -> Run:
    now = timezone.now()
    job = Job.objects.create(
        kind="runs.execute", state="running", worker="w:1", lease_until=now + timedelta(hours=1)
    )
    run = make_run(people.project, label="Slow one", state="running", ended_at=None, job=job)
    one, two, three = tasks_of(run)
    make_rollout(run, one, ended_at=now - timedelta(minutes=40))
    started = {"state": "running", "started_at": now - timedelta(minutes=41, seconds=30)}
    make_rollout(run, two, **started)
    make_rollout(run, three, **started)
    return run


def test_a_stuck_run_is_explained_and_can_be_ended(people: People) -> None:
    run = stuck_run(people)
    html = overview(people, people.editor)
    assert "Stuck: Slow one" in html
    assert "Waits for 2 rollouts of Terminal files v1, oldest 41 min 3" in html
    assert reverse("web:run_cancel", args=[people.project.pk, run.pk]) in html
    assert '<span class="num muted">33 %</span>' not in html  # stuck stands in its place
    # A viewer sees the same without the button that changes something.
    html = overview(people, people.member)
    assert "Stuck: Slow one" in html
    assert reverse("web:run_cancel", args=[people.project.pk, run.pk]) not in html


def test_paused_climbs_and_trainings_can_be_let_on(people: People) -> None:
    climb = make_climb(people.project, state="paused")
    job = make_training_job(people.project, pause_reason="entropy fell below 0.1")
    html = overview(people, people.editor)
    assert reverse("web:climb_action", args=[people.project.pk, climb.pk, "resume"]) in html
    assert "Entropy fell below 0.1" in html
    assert reverse("web:training_action", args=[people.project.pk, job.pk, "resume"]) in html


def test_what_failed_today_is_there_and_what_failed_long_ago_is_not(people: People) -> None:
    make_run(people.project, label="New", state="failed", error="No such host.")
    long_ago = timezone.now() - timedelta(days=3)
    make_run(people.project, label="Old", state="failed", error="x", ended_at=long_ago)
    html = overview(people, people.member)
    assert "Run failed: New" in html and "No such host." in html
    assert "Run failed: Old" not in html


def test_a_climb_says_which_rollouts_it_waits_for(people: People) -> None:
    climb = make_climb(people.project)
    ClimbRun.objects.create(climb=climb, run=stuck_run(people), rung_index=2, phase="train")
    html = overview(people, people.member)
    assert "Train step 3: 8 of 32 rollouts; waits for 2 rollouts of Terminal files v1" in html


def test_nothing_to_do_is_said(people: People) -> None:
    html = overview(people, people.editor)
    assert "Nothing waits for you" in html
    assert "Nothing is in progress." in html and "Start a run" in html


def test_climbs_that_have_ended_are_listed_without_the_one_on_top(people: People) -> None:
    old = make_climb(people.project, name="Earlier", state="completed", ended_at=timezone.now())
    make_climb(people.project)
    html = overview(people, people.member)
    assert "Last climbs" in html
    assert html.count(f'href="{reverse("web:climb", args=[people.project.pk, old.pk])}"') == 1


def test_other_projects_are_not_seen(people: People) -> None:
    stuck_run(people)
    client = Client()
    client.force_login(people.stranger)
    elsewhere = people.stranger.memberships.get().project_id
    html = client.get(reverse("web:overview", args=[elsewhere])).content.decode()
    assert "Slow one" not in html
