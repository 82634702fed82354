"""The form that starts a climb, and a person's word against the plateau rule."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.climbs.models import Climb
from orchestrator.projects.models import User
from tests.base import People
from tests.web.build import make_climb, make_environment, make_rubric

ADVICE = {
    "rung": 1,
    "chosen": "stop",
    "next": "stop",
    "reason": "neither is expected to gain a point",
    "harness": {"gain": 0.004, "low": -0.01, "high": 0.02, "rate": 0.00001},
    "weights": {"gain": 0.006, "low": -0.02, "high": 0.03, "rate": 0.00002},
}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def start(people: People) -> str:
    return reverse("web:climb_start", args=[people.project.pk])


def form_of(people: People, **changes: Any) -> dict[str, Any]:
    model = ModelEndpoint.objects.create(
        project=people.project, name="tiny", kind=EndpointKind.LOCAL, model="tiny"
    )
    return {
        "version": make_environment(people.project).pk,
        "rubric": make_rubric(people.project).pk,
        "model": model.pk,
        "max_rollouts": 900,
        "max_harness_rungs": 2,
        "certify_pairs": 40,
        "test_replicates": 1,
        "steps": 6,
        "groups": 4,
        "samples": 8,
        "sampler": "signal",
        "env_loss_weight": 0.1,
        "concurrency": 16,
        **changes,
    }


def test_a_climb_is_started_with_what_was_chosen(people: People) -> None:
    held_out = make_rubric(people.project)
    sent = form_of(people, held_out=held_out.pk)
    response = signed_in(people.editor).post(start(people), sent)
    climb = Climb.objects.get()
    assert response["Location"] == reverse("web:climb", args=[people.project.pk, climb.pk])
    assert climb.config["max_rollouts"] == 900
    assert climb.config["train"]["sampler"] == "signal"
    assert climb.config["train"]["env_loss_weight"] == pytest.approx(0.1)
    assert climb.config["search"]["certify_max_pairs"] == 40
    assert climb.config["watch"]["held_out_rubric"] == held_out.pk


def test_a_held_out_rubric_is_another_one(people: People) -> None:
    sent = form_of(people)
    response = signed_in(people.editor).post(start(people), {**sent, "held_out": sent["rubric"]})
    assert response.status_code == 422 and not Climb.objects.exists()
    html = response.content.decode()
    assert "Choose another rubric" in html and 'id="id_held_out-error"' in html


def test_only_editors_start_and_overrule(people: People) -> None:
    climb = make_climb(people.project)
    overrule = reverse("web:climb_overrule", args=[people.project.pk, climb.pk])
    assert signed_in(people.member).get(start(people)).status_code == 403
    assert signed_in(people.stranger).get(start(people)).status_code == 404
    assert signed_in(people.member).post(overrule, {"next": "stop"}).status_code == 403
    assert signed_in(people.stranger).post(overrule, {"next": "stop"}).status_code == 404
    assert signed_in(people.editor).get(overrule).status_code == 405


def test_a_project_without_anything_names_the_next_step(people: People) -> None:
    html = signed_in(people.editor).get(start(people)).content.decode()
    assert "A climb needs an environment, a rubric and a model" in html


def test_the_turn_is_shown_with_its_reason_and_overruled(people: People) -> None:
    climb = make_climb(people.project, state="completed", phase="done", advice=ADVICE)
    page = reverse("web:climb", args=[people.project.pk, climb.pk])
    html = signed_in(people.editor).get(page).content.decode()
    assert "Neither is expected to gain a point." in html
    assert "+0.6" in html and 'id="turn-weights"' in html
    assert 'id="turn-weights"' not in signed_in(people.member).get(page).content.decode()
    overrule = reverse("web:climb_overrule", args=[people.project.pk, climb.pk])
    signed_in(people.editor).post(overrule, {"next": "weights"})
    climb.refresh_from_db()
    assert climb.overruled == "weights" and climb.state == "running"


def test_a_climb_that_trains_offers_no_turn(people: People) -> None:
    climb = make_climb(people.project)  # in its training
    page = reverse("web:climb", args=[people.project.pk, climb.pk])
    assert 'id="turn-' not in signed_in(people.editor).get(page).content.decode()
    overrule = reverse("web:climb_overrule", args=[people.project.pk, climb.pk])
    html = signed_in(people.editor).post(overrule, {"next": "stop"}, follow=True).content.decode()
    assert "has turned to weights" in html
