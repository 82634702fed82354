"""Caps of a project's day: what is refused, what pauses, and what goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.runs.limits import LimitReached, set_limits, use_today
from orchestrator.runs.models import Rollout, Run
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run
from tests.base import People
from tests.web.build import make_rollout, make_run, tasks_of


def another(run: Run, *, n: int, key: str | None = None) -> Run:
    task = tasks_of(run)[0]
    first = run.rollouts.first()
    assert first is not None
    spec = RunSpec(
        project=run.project,
        purpose=run.purpose,
        label="another",
        environment_version=run.environment_version,
        rubric_version=run.rubric_version,
        model=run.model,
        seed=1,
    )
    plan = [PlannedRollout(first.harness_id, task, replicate) for replicate in range(n)]
    return create_run(spec=spec, plan=plan, key=key)


@pytest.fixture
def run(people: People) -> Run:
    run = make_run(people.project)
    make_rollout(run, tasks_of(run)[0])
    return run


def test_rollouts_beyond_the_cap_are_refused_whole(people: People, run: Run) -> None:
    set_limits(
        actor=people.owner, project_id=people.project.pk, rollouts_per_day=5, usd_per_day=None
    )
    another(run, n=4, key="fits")
    assert use_today(people.project.pk).rollouts == 5
    with pytest.raises(LimitReached, match=r"1 rollouts are asked for.*5 a day.*started 5"):
        another(run, n=1)
    assert Rollout.everything.count() == 5
    # Asked for once more, a run that exists is no new one.
    assert another(run, n=4, key="fits").rollouts.count() == 4
    set_limits(
        actor=people.owner, project_id=people.project.pk, rollouts_per_day=None, usd_per_day=None
    )
    another(run, n=10)


def test_money_that_is_spent_stops_the_next_run(people: People, run: Run) -> None:
    run.rollouts.update(cost_usd=1.5, ended_at=timezone.now())
    Run.objects.filter(pk=run.pk).update(ended_at=timezone.now())
    # Of another day: it counts no more.
    before = make_rollout(run, tasks_of(run)[1])
    Rollout.everything.filter(pk=before.pk).update(
        cost_usd=9, ended_at=timezone.now() - timedelta(days=1)
    )
    set_limits(
        actor=people.owner, project_id=people.project.pk, rollouts_per_day=None, usd_per_day=1.5
    )
    with pytest.raises(LimitReached, match=r"\$1\.50 a day on rollouts and has spent \$1\.50"):
        another(run, n=1)


def test_only_admins_set_caps_and_none_is_below_zero(people: People) -> None:
    project_id = people.project.pk
    with pytest.raises(PermissionDenied):
        set_limits(actor=people.editor, project_id=project_id, rollouts_per_day=1, usd_per_day=None)
    with pytest.raises(ValueError, match="from 0 up"):
        set_limits(actor=people.owner, project_id=project_id, rollouts_per_day=-1, usd_per_day=None)


def test_the_page_shows_use_and_sets_caps(people: People, run: Run) -> None:
    client = Client()
    client.force_login(people.owner)
    url = reverse("web:limits", args=[people.project.pk])
    assert "no cap" in client.get(url).content.decode()
    client.post(url, {"rollouts_per_day": "7", "usd_per_day": ""})
    assert "1 of 7" in client.get(url).content.decode()
    assert client.post(url, {"rollouts_per_day": "-1"}).status_code == 422
    client.force_login(people.editor)
    assert client.post(url, {"rollouts_per_day": "9"}).status_code == 403
