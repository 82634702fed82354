from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from optimizer.harness import Harness
from optimizer.models import HarnessVersion, SearchState
from optimizer.store import load_harness
from orchestrator.agents.models import ModelEndpoint
from orchestrator.runs.models import Rollout
from orchestrator.searches.services import SearchRefused
from tests.base import People
from tests.searches.playing import demonstrations_help, make_form, play, start

pytestmark = pytest.mark.django_db

COUNTS = {"train": 12, "select": 10, "test": 8}


def other_model(people: People, name: str) -> int:
    return ModelEndpoint.objects.create(
        project=people.project, name=name, base_url="http://127.0.0.1:9", model=name
    ).pk


def poor_is_worse(harness: Harness, rollout: Rollout) -> float | None:
    return 0.0 if harness.model == "poor" else demonstrations_help(harness, rollout)


def choosing(people: People, **changes: Any) -> dict[str, Any]:
    models = [other_model(people, name) for name in ("poor", "cheap")]
    return {
        "models": models,
        "margin": 0.3,
        "model_rollouts": 24,
        "model_pairs": 60,
        "budget": {"rollouts": 260},
        **changes,
    }


def test_the_cheapest_model_that_is_not_inferior_is_released_with_the_harness(
    people: People,
) -> None:
    search = start(people, **choosing(people))
    play(poor_is_worse)
    search.refresh_from_db()
    assert search.state == SearchState.AWAITING_APPROVAL
    table = search.outcome["models"]
    assert table["chosen"] == "cheap"
    assert [arm["model"] for arm in table["arms"]][1:] == ["poor", "cheap"]
    assert all(arm["rollouts"] for arm in table["arms"])
    shipped = load_harness(HarnessVersion.objects.get(pk=search.outcome["shipped"]))
    assert shipped.model == "cheap"
    assert shipped.demonstrations
    assert {run.phase for run in search.search_runs.all()} >= {"models", "certify", "test"}


def test_models_are_paid_from_a_share_of_their_own(people: People) -> None:
    search = start(people, **choosing(people))
    play(poor_is_worse)
    spent = Rollout.objects.filter(run__search_run__search=search).count()
    models = Rollout.objects.filter(
        run__search_run__search=search, run__search_run__phase="models"
    ).count()
    assert models <= 24 + 2 * 60
    assert spent <= 260


def test_a_budget_without_room_for_the_models_is_refused(people: People) -> None:
    with pytest.raises(SearchRefused, match="to choose among models"):
        start(people, **choosing(people, budget={"rollouts": 104}))


def test_a_margin_of_zero_is_refused(people: People) -> None:
    with pytest.raises(ValueError, match="margin"):
        make_form(people.project, **choosing(people, margin=0.0))


def test_a_margin_that_the_test_cannot_bear_is_refused_before_it_costs(people: People) -> None:
    with pytest.raises(SearchRefused, match=r"margin: accepts 0 to 0\.4, got 0\.5"):
        start(people, make_form(people.project, **choosing(people, margin=0.5)))


def test_the_page_shows_what_the_models_did(people: People, client: Client) -> None:
    search = start(people, **choosing(people))
    play(poor_is_worse)
    client.force_login(people.member)
    body = client.get(f"/p/{people.project.pk}/optimise/{search.pk}/").content.decode()
    table = body[body.index('id="models"') :]
    assert table.index("cheap") < table.index("not worse by 30 points")
