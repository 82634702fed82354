"""Who may see and do what: members see every page, a stranger gets 404, nobody the sign-in."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.climbs.models import Climb
from orchestrator.projects.models import ApiToken, Role, User
from orchestrator.projects.services import issue_token
from orchestrator.runs.models import Rollout, Run
from orchestrator.web import urls
from tests.base import People
from tests.gates.build import make_gate
from tests.web import test_authoring_access as authoring
from tests.web import test_climb_report as reports
from tests.web import test_compare_pages as compare
from tests.web import test_harness_pages as harnesses
from tests.web import test_regrade_pages as regrades
from tests.web import test_review_pages as review
from tests.web import test_rollout_list_pages as lists
from tests.web import test_rubric_pages as rubrics
from tests.web import test_search_pages as searches
from tests.web import test_training_pages as trainings
from tests.web.build import (
    make_climb,
    make_rollout,
    make_run,
    make_trace,
    make_training_job,
    tasks_of,
)


@dataclass(frozen=True)
class World:
    people: People
    run: Run
    rollout: Rollout
    climb: Climb
    arguments: dict[str, list[object]]
    """Arguments of each page's address after the project."""

    def url(self, name: str) -> str:
        return reverse(f"web:{name}", args=[self.people.project.pk, *self.arguments[name]])


@pytest.fixture
def world(people: People) -> World:
    project = people.project
    run = make_run(project)
    task = tasks_of(run)[0]
    rollout = make_rollout(run, task)
    make_trace(rollout)
    climb = make_climb(project)
    environment = run.environment_version.environment
    return World(
        people=people,
        run=run,
        rollout=rollout,
        climb=climb,
        arguments={
            "overview": [],
            "status": [],
            "environments": [],
            "environment": [environment.slug],
            "environment_try": [environment.slug],
            "environment_checks": [environment.slug],
            "environment_curriculum": [environment.slug],
            "task": [environment.slug, 1, task.key],
            "runs": [],
            "gates": [],
            "gate": [make_gate(people).pk],
            "run": [run.pk],
            "rollouts": [],
            "rollout_words": [],
            "rollout_peek": [rollout.pk],
            "rollout": [rollout.pk],
            "rollout_cards": [rollout.pk],
            "rollout_ledger": [rollout.pk],
            "rollout_jsonl": [rollout.pk],
            "event_search": [],
            "imports": [],
            "rollout_atif": [rollout.pk],
            "rollout_training_trace": [rollout.pk],
            "rollout_outline": [rollout.pk],
            "rollout_index": [rollout.pk],
            "rollout_find": [rollout.pk],
            "rollout_event": [rollout.pk, 1],
            "rubrics": [],
            "rubric": [run.rubric_version.rubric_id],
            "training": [],
            "training_job": [make_training_job(project).pk],
            "climbs": [],
            "climb": [climb.pk],
            "certificate": [climb.pk, 1],
            "settings": [],
            "members": [],
            "limits": [],
            "models": [],
            "environment_network": [environment.slug],
        },
    )


PAGES = [
    "overview",
    "status",
    "environments",
    "environment",
    "environment_try",
    "environment_checks",
    "environment_curriculum",
    "task",
    "runs",
    "gates",
    "gate",
    "run",
    *sorted(lists.PAGES),
    "rollout",
    "rollout_cards",
    "rollout_ledger",
    "rollout_jsonl",
    "event_search",
    "imports",
    "rollout_atif",
    "rollout_training_trace",
    "rollout_outline",
    "rollout_index",
    "rollout_find",
    "rollout_event",
    "rubrics",
    "rubric",
    "training",
    "training_job",
    "climbs",
    "climb",
    "certificate",
    "settings",
    "members",
    "limits",
    "models",
    "environment_network",
]
FOR_EDITORS = {"tryout", "tryout_ask", "run_start"}
"""Tested in `test_tryout_pages` and `test_starting`."""
WRITES = {
    *("run_cancel", "climb_action", "token_revoke", "theme", "home"),
    "gate_cancel",
    *("check_start", "check_cancel", "model_bundled", "model_change"),
}
"""Those of checks are tested in `test_checks`, those of models in `test_starting`, of gates in
`tests/gates/test_pages`.
"""
ELSEWHERE = {
    *("rubric_calibration", "calibration_compare", "calibration_label", "calibration_bar"),
    *("calibration_policy", "calibration_enqueue"),
    *("alignment_start", "alignment_cancel", "alignment_take"),
    *("rubric_redteam", "redteam_start", "redteam_cancel", "redteam_golden"),
    *("alarm_acknowledge", "judge_limits"),
    *("climb_start", "climb_overrule"),
    "rollout_media",
    "ledger_look",
    *("webhooks", "webhook", "webhook_change", "delivery_replay"),
    *("archives", "export_start", "export_action", "export_file", "project_import"),
    *("retention", "retention_rule", "retention_look", "retention_keep", "retention_let_go"),
    *("audit", "audit_file", "member_role", "member_remove", "invitation_revoke"),
    "system",
}
"""Tested in `test_calibration_pages`, `test_redteam_page`, `test_alarms_page`, `test_judge_limits`,
`test_climb_start`, `test_trace_pages`, `test_ledger_pages`, `test_keeping_pages`,
`tests/projects/test_team`,
`tests/operating/test_system_page`.
"""


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_every_address_is_under_test() -> None:
    names = {
        item.name
        for pattern in urls.urlpatterns
        for item in getattr(pattern, "url_patterns", [pattern])
    }
    known = set(PAGES) | WRITES | FOR_EDITORS | ELSEWHERE | authoring.PAGES | authoring.WRITES
    known |= regrades.PAGES | regrades.WRITES | rubrics.PAGES | rubrics.WRITES
    known |= trainings.PAGES | trainings.FOR_EDITORS | trainings.WRITES
    known |= harnesses.PAGES | harnesses.WRITES | compare.PAGES | reports.PAGES
    known |= lists.FOR_EDITORS | lists.WRITES | lists.OTHERS
    known |= searches.PAGES | searches.FOR_EDITORS | searches.WRITES
    assert names == known | review.PAGES | review.FOR_EDITORS | review.WRITES


@pytest.mark.parametrize("name", PAGES)
def test_members_see_the_page(world: World, name: str) -> None:
    for user in (world.people.owner, world.people.member):
        assert signed_in(user).get(world.url(name)).status_code == 200


@pytest.mark.parametrize("name", PAGES)
def test_a_stranger_learns_nothing(world: World, name: str) -> None:
    assert signed_in(world.people.stranger).get(world.url(name)).status_code == 404


@pytest.mark.parametrize("name", PAGES)
def test_nobody_is_sent_to_the_sign_in(world: World, name: str) -> None:
    response = Client().get(world.url(name))
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("login"))


@pytest.mark.parametrize("name", ["run", "rollout", "climb", "rubric", "training_job", "gate"])
def test_an_id_of_another_project_does_not_exist_here(world: World, name: str) -> None:
    elsewhere = world.people.stranger.memberships.get().project_id
    url = reverse(f"web:{name}", args=[elsewhere, *world.arguments[name]])
    assert signed_in(world.people.stranger).get(url).status_code == 404


def test_a_viewer_cancels_no_run(world: World) -> None:
    run = make_run(world.people.project, state="running", ended_at=None)
    url = reverse("web:run_cancel", args=[run.project_id, run.pk])
    assert signed_in(world.people.member).post(url).status_code == 403
    assert signed_in(world.people.stranger).post(url).status_code == 404
    run.refresh_from_db()
    assert run.state == "running"


def test_an_editor_cancels_a_run(world: World) -> None:
    run = make_run(world.people.project, state="queued", started_at=None, ended_at=None)
    url = reverse("web:run_cancel", args=[run.project_id, run.pk])
    assert signed_in(world.people.editor).post(url).status_code == 302
    run.refresh_from_db()
    assert run.state == "cancelled" or (run.job is not None and run.job.cancel_requested)


def test_a_get_changes_nothing(world: World) -> None:
    client = signed_in(world.people.owner)
    for url in (
        reverse("web:run_cancel", args=[world.run.project_id, world.run.pk]),
        reverse("web:climb_action", args=[world.climb.project_id, world.climb.pk, "pause"]),
        reverse("web:theme"),
    ):
        assert client.get(url).status_code == 405


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_a_viewer_does_not_steer_a_climb(world: World, action: str) -> None:
    url = reverse("web:climb_action", args=[world.climb.project_id, world.climb.pk, action])
    assert signed_in(world.people.member).post(url).status_code == 403
    assert signed_in(world.people.stranger).post(url).status_code == 404
    world.climb.refresh_from_db()
    assert world.climb.state == "running"


def test_an_editor_pauses_and_resumes_a_climb(world: World) -> None:
    client = signed_in(world.people.editor)
    for action, state in (("pause", "paused"), ("resume", "running")):
        url = reverse("web:climb_action", args=[world.climb.project_id, world.climb.pk, action])
        assert client.post(url).status_code == 302
        world.climb.refresh_from_db()
        assert world.climb.state == state


def test_resuming_a_running_climb_says_why_not(world: World) -> None:
    url = reverse("web:climb_action", args=[world.climb.project_id, world.climb.pk, "resume"])
    response = signed_in(world.people.editor).post(url, follow=True)
    assert response.status_code == 200
    assert 'class="notice bad"' in response.content.decode()


def test_a_viewer_sees_no_button_that_changes_something(world: World) -> None:
    for name in ("climb", "environments"):
        html = signed_in(world.people.member).get(world.url(name)).content.decode()
        assert "Cancel climb" not in html
        assert "Connect an OpenEnv server" not in html


def test_a_token_is_shown_once(world: World) -> None:
    client = signed_in(world.people.editor)
    url = world.url("settings")
    html = client.post(url, {"name": "ci", "role": "viewer"}).content.decode()
    token = ApiToken.objects.get()
    assert f"{token.prefix}" in html and html.count("swb_") >= 2
    assert "shown this once" not in client.get(url).content.decode()


def test_nobody_makes_a_token_above_their_role(world: World) -> None:
    response = signed_in(world.people.editor).post(
        world.url("settings"), {"name": "ci", "role": "admin"}
    )
    assert response.status_code == 422
    assert not ApiToken.objects.exists()


def test_viewers_make_no_token_and_revoke_none_of_others(world: World) -> None:
    issued = issue_token(
        actor=world.people.owner, project_id=world.people.project.pk, name="ci", role=Role.VIEWER
    )
    client = signed_in(world.people.member)
    assert client.post(world.url("settings"), {"name": "x", "role": "viewer"}).status_code == 403
    revoke = reverse("web:token_revoke", args=[world.people.project.pk, issued.token.pk])
    assert client.post(revoke).status_code == 403
    assert signed_in(world.people.stranger).post(revoke).status_code == 404
    assert signed_in(world.people.owner).post(revoke).status_code == 302
    issued.token.refresh_from_db()
    assert issued.token.revoked_at is not None


def test_the_root_leads_to_the_first_project(world: World) -> None:
    response = signed_in(world.people.owner).get("/")
    assert response["Location"] == world.url("overview")


def test_without_a_project_the_next_step_is_named(people: People) -> None:
    people.stranger.memberships.all().delete()
    html = signed_in(people.stranger).get("/").content.decode()
    assert "make demo" in html
