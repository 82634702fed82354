"""The harness rung of a climb is a search (`orchestrator.searches`): what goes in and comes out.

The search has an account of its own and is booked on the climb's as well: each run that it asks for
is noted as a run of the climb, so that the watch, the progress and what is learned from look at one
list.
"""

from __future__ import annotations

import math
from typing import Any

from django.db import transaction

from optimizer.models import ENDED_SEARCH_STATES, HarnessVersion, Search, SearchRun, SearchState
from orchestrator.climbs.asking import budget_of
from orchestrator.climbs.budget import reserve
from orchestrator.climbs.curricula import evidence_tasks
from orchestrator.climbs.models import Climb, ClimbRun, Phase, Rung
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.climbs.settings import SearchSettings as RungSettings
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.runs.seeds import derive_seed
from orchestrator.searches.services import SearchForm, create_search
from orchestrator.searches.settings import RETRY_SHARE, BudgetSettings, SearchSettings


class SearchFailed(RuntimeError):
    """The climb's search ended without a result; the message is its reason."""


def advance_search(
    *, climb: Climb, rung: Rung, base: HarnessVersion, fence: Fence
) -> HarnessVersion | None:
    """The harness that the search from `base` ends with; None while it runs.

    Raises LeaseLost, SearchFailed, SearchRefused.
    """
    search = climb.search or _start(climb, rung, base, fence)
    if search.state not in ENDED_SEARCH_STATES:
        return None
    if search.state != SearchState.COMPLETED:
        raise SearchFailed(search.error or f"The harness search was {search.get_state_display()}.")
    return HarnessVersion.objects.get(pk=search.outcome["shipped"])


def _start(climb: Climb, rung: Rung, base: HarnessVersion, fence: Fence) -> Search:
    with transaction.atomic():
        hold_fence(fence)
        search = create_search(
            project=climb.project,
            form=SearchForm(
                name=f"{climb.name}, {rung.get_kind_display().lower()} rung {rung.index}",
                environment_version=climb.environment_version,
                rubric_version=climb.rubric_version,
                model=climb.model,
                seed_harness=base,
                settings=search_settings(climb),
            ),
            seed=climb.seed if rung.index == 1 else derive_seed(climb.seed, rung.index),
        )
        Climb.objects.filter(pk=climb.pk).update(search=search)
        Rung.objects.filter(pk=rung.pk).update(search=search)
    return search


def search_settings(climb: Climb) -> SearchSettings:
    """The rung's sizes in the words of a search. Its proposers are the offline ones, asked once."""
    settings = ClimbSettings.from_json(climb.config)
    own = settings.search
    screen = own.blocks * own.tasks_per_block
    race = own.race_candidates * own.race_tasks
    rollouts = own.evidence_tasks + screen + race
    watched = []
    if own.evidence_sampler != "sequential":
        watched = [task.key for task in evidence_tasks(climb=climb, settings=own)]
    return SearchSettings(
        engine_settings={
            "evidence": own.evidence_tasks,
            "wave_blocks": own.wave_blocks,
            "tasks_per_block": own.tasks_per_block,
            "max_rounds": 1,
            "entry_support": 1,
            "max_demonstrations": own.max_demonstrations,
            "race_candidates": own.race_candidates,
            "race_share": race / rollouts,
            **({"watch": watched} if watched else {}),
        },
        proposer_settings={"offline": _offline(own)},
        budget=BudgetSettings(rollouts=_with_repeats(rollouts + 2 * own.certify_max_pairs)),
        certify_pairs=own.certify_max_pairs,
        certify_batch=own.certify_batch_pairs,
        alpha=own.alpha,
        test=False,
        concurrency=settings.concurrency,
        is_part=True,
    )


def _offline(own: RungSettings) -> dict[str, Any]:
    return {
        "operators": ["demonstrations.reference", "demonstrations.success", "instructions"],
        "most": {
            "demonstrations.reference": own.demonstrations,
            "demonstrations.success": own.own_demonstrations,
        },
    }


def _with_repeats(rollouts: int) -> int:
    return math.ceil(rollouts / (1 - RETRY_SHARE)) + 1


# --- what the climb hears of it -----------------------------------------------------------------


def climb_of(search: Search) -> Climb | None:
    return Climb.objects.filter(search=search).first()


def note_run(search_run: SearchRun) -> None:
    """Books a run of the search on the climb and lists it there. Needs a transaction.

    Raises BudgetExceeded.
    """
    climb = climb_of(search_run.search)
    if climb is None:
        return
    run = search_run.run
    settings = ClimbSettings.from_json(climb.config)
    reserve(
        budget=budget_of(climb, settings),
        key=run.key or "",
        amount=run.rollouts.count(),
        phase=Phase.SEARCH,
    )
    rung = climb.rungs.get(search=search_run.search)
    ClimbRun.objects.create(
        climb=climb,
        run=run,
        rung_index=rung.index,
        phase=Phase.SEARCH,
        left_out=search_run.left_out,
    )
    event = NewEvent(
        "run", {"id": run.pk, "phase": Phase.SEARCH, "label": run.label, "rung": rung.index}
    )
    append(stream_id=climb.stream_id, items=[event])


def note_words(search: Search, text: str) -> None:
    """Needs a transaction."""
    climb = climb_of(search)
    if climb is not None:
        append(stream_id=climb.stream_id, items=[NewEvent("decision", {"text": text})])
