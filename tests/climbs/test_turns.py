"""The turn after a harness rung: what the rule says, what a person says, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from optimizer.models import Search, SearchState
from optimizer.plateau import Next
from orchestrator.agents.models import EndpointKind
from orchestrator.climbs.machine import advance
from orchestrator.climbs.models import Climb, ClimbState, Phase, Rung, RungKind, RungState
from orchestrator.climbs.services import ClimbError
from orchestrator.climbs.turns import newest, overrule, turn
from orchestrator.jobs import lease
from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job
from orchestrator.runs.models import Run
from tests.base import People
from tests.climbs.ladder import make_ladder, told

pytestmark = pytest.mark.django_db


def fence_of(climb: Climb) -> Fence:
    job = Job.objects.filter(kind="climbs.advance", spec={"climb_id": climb.pk}).latest("id")
    claimed = lease.claim(job.pk)
    assert claimed is not None
    return claimed.fence


def at_the_turn(people: People, **settings: Any) -> tuple[Climb, Fence]:
    """A climb whose harness rung has its verdict: the seed stays."""
    climb = make_ladder(people, **settings)
    fence = fence_of(climb)
    climb.rungs.filter(index=0).update(state=RungState.DONE, verdict="reference")
    climb.rungs.filter(index=1).update(
        state=RungState.DONE, verdict="inconclusive", harness=climb.seed_harness
    )
    search = Search.objects.create(
        project=climb.project,
        seed_harness=climb.seed_harness,
        seed=1,
        state=SearchState.COMPLETED,
        settings={"budget": {"rollouts": 600}},
        outcome={
            "is_measured": True,
            "reason": "nothing helped",
            "winner": climb.seed_harness_id,
            "shipped": climb.seed_harness_id,
        },
    )
    climb.rungs.filter(index=1).update(search=search)
    Climb.objects.filter(pk=climb.pk).update(
        phase=Phase.HARNESS_TEST, state=ClimbState.RUNNING, search=search
    )
    climb.refresh_from_db()
    return climb, fence


def not_trainable(climb: Climb) -> None:
    climb.model.kind = EndpointKind.OPENAI
    climb.model.save()


def leave_edits(climb: Climb, n: int = 4, mean: float = 0.06) -> None:
    """Edits that look good and are not in the harness."""
    assert climb.search is not None
    for position in range(n):
        climb.search.edits.create(
            position=position,
            sha256=f"{position:064d}",
            operator="test",
            component="instructions.md",
            data={"op": "append", "component": "instructions.md", "content": f"{position}"},
            effect_mean=mean,
            effect_sd=0.03,
        )


def test_where_nothing_is_left_to_try_the_weights_come_next(people: People) -> None:
    climb, fence = at_the_turn(people)
    assert turn(climb, fence) is Next.WEIGHTS
    (said,) = [p["text"] for p in told(climb, "decision")]
    assert said.startswith("Weights next: another harness search promises +0.0 points")
    climb.refresh_from_db()
    assert climb.advice["next"] == climb.advice["chosen"] == "weights"
    assert climb.advice["weights"]["gain"] == pytest.approx(0.05, abs=0.002)


def test_a_turn_is_taken_once(people: People) -> None:
    climb, fence = at_the_turn(people)
    assert turn(climb, fence) is turn(climb, fence) is Next.WEIGHTS
    assert len(told(climb, "decision")) == 1


def test_more_searches_than_the_climb_allows_are_not_made(people: People) -> None:
    climb, fence = at_the_turn(people)
    climb.config["train"]["steps"] = 500
    climb.save()
    leave_edits(climb)
    assert turn(climb, fence) is Next.WEIGHTS
    (said,) = [p["text"] for p in told(climb, "decision")]
    assert said.startswith("Harness next: ")
    assert "allows 1 harness rung (max_harness_rungs), so weights comes next" in said


def test_another_search_starts_from_the_best_harness_below(people: People) -> None:
    climb, fence = at_the_turn(people, max_harness_rungs=2)
    climb.config["train"]["steps"] = 500
    climb.save()
    leave_edits(climb)
    advance(climb_id=climb.pk, fence=fence)
    climb.refresh_from_db()
    assert climb.phase == Phase.SEARCH
    kinds = [(rung.index, rung.kind) for rung in climb.rungs.all()]
    assert kinds == [(0, "baseline"), (1, "harness"), (2, "harness"), (3, "echo")]
    assert climb.search is not None
    assert climb.search.seed_harness == climb.seed_harness
    first, second = climb.rungs.filter(kind=RungKind.HARNESS)
    assert second.search == climb.search != first.search
    assert first.search is not None
    assert climb.search.seed != first.search.seed
    assert newest(climb, RungKind.HARNESS) == second


def test_a_climb_whose_model_cannot_be_trained_ends_where_nothing_is_left(people: People) -> None:
    climb, fence = at_the_turn(people)
    not_trainable(climb)
    advance(climb_id=climb.pk, fence=fence)
    climb.refresh_from_db()
    assert (climb.state, climb.phase) == (ClimbState.COMPLETED, Phase.DONE)
    echo = climb.rungs.get(kind=RungKind.ECHO)
    assert echo.state == RungState.PENDING
    assert "training the weights is not possible here" in echo.sentence
    assert not Run.objects.exists()


def test_a_person_overrules_the_rule_beforehand(people: People) -> None:
    climb, fence = at_the_turn(people)
    overrule(actor=people.editor, climb=climb, next="stop")
    assert turn(climb, fence) is Next.STOP
    texts = [p["text"] for p in told(climb, "decision")]
    assert "overrules the rule: stop next" in texts[0]
    assert texts[1].startswith("Stop next, as a person decided. The rule: Weights next")
    climb.refresh_from_db()
    assert climb.overruled == ""


def test_a_climb_that_ended_on_the_rules_word_goes_on_at_a_persons(people: People) -> None:
    climb, fence = at_the_turn(people)
    not_trainable(climb)
    advance(climb_id=climb.pk, fence=fence)
    with pytest.raises(ClimbError, match="cannot be trained"):
        overrule(actor=people.editor, climb=climb, next="weights")
    overrule(actor=people.editor, climb=climb, next="harness")
    climb.refresh_from_db()
    assert (climb.state, climb.ended_at) == (ClimbState.RUNNING, None)
    advance(climb_id=climb.pk, fence=fence)
    climb.refresh_from_db()
    assert climb.phase == Phase.SEARCH
    assert Rung.objects.filter(climb=climb, kind=RungKind.HARNESS).count() == 2


def test_what_cannot_be_overruled_says_why(people: People) -> None:
    climb, _ = at_the_turn(people)
    with pytest.raises(ClimbError, match="harness, weights, stop"):
        overrule(actor=people.editor, climb=climb, next="left")
    with pytest.raises(PermissionDenied):
        overrule(actor=people.member, climb=climb, next="stop")
    Climb.objects.filter(pk=climb.pk).update(phase=Phase.TRAIN)
    with pytest.raises(ClimbError, match="has turned to weights"):
        overrule(actor=people.editor, climb=climb, next="stop")
    Climb.objects.filter(pk=climb.pk).update(phase=Phase.DONE, state=ClimbState.CANCELLED)
    with pytest.raises(ClimbError, match="is cancelled; it has ended"):
        overrule(actor=people.editor, climb=climb, next="harness")
