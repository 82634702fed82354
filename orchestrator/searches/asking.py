"""How a search asks for a run: under a key, within its budget, once."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from optimizer.models import ENDED_SEARCH_STATES, Search, SearchRun
from orchestrator.events.services import Fence, NewEvent, hold_fence
from orchestrator.jobs.errors import Cancelled
from orchestrator.runs.models import Run
from orchestrator.runs.seeds import derive_seed
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run
from orchestrator.searches.learning import left_out_for, words
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.signals import run_asked
from orchestrator.searches.spending import reserve_run
from orchestrator.searches.telling import say, tell


def hold(search: Search, fence: Fence) -> None:
    """Needs a transaction: whoever else moves the search waits for its end. Raises LeaseLost."""
    hold_fence(fence)
    # Of SQLite there is one writer at a time anyway.
    Search.objects.select_for_update().only("pk").get(pk=search.pk)


def ask_for_run(
    *,
    search: Search,
    settings: SearchSettings,
    key: str,
    phase: str,
    label: str,
    purpose: str,
    plan: Sequence[PlannedRollout],
    seed_part: str,
    fence: Fence,
) -> Run:
    """The run of this key, made and queued when it does not exist.

    Raises:
        BudgetExceeded: a cap does not allow it; nothing was made.
        LeaseLost: another attempt moves the search.
        Cancelled: the search ended meanwhile; nothing was made.
    """
    full_key = f"search-{search.pk}-{key}"
    existing = Run.objects.filter(key=full_key).first()
    if existing is not None:
        return existing if existing.has_ended else start_run(run=existing)
    assert search.environment_version is not None
    assert search.rubric_version is not None
    assert search.model is not None
    with transaction.atomic():
        hold(search, fence)
        # It may have been cancelled since its state was read; nobody would end the run.
        if not Search.objects.filter(pk=search.pk).exclude(state__in=ENDED_SEARCH_STATES).exists():
            raise Cancelled(f"search {search.pk} has ended")
        reserve_run(
            search=search, settings=settings, key=full_key, phase=phase, n=len(plan), what=label
        )
        run = create_run(
            key=full_key,
            plan=plan,
            spec=RunSpec(
                project=search.project,
                purpose=purpose,
                label=label,
                environment_version=search.environment_version,
                rubric_version=search.rubric_version,
                model=search.model,
                seed=derive_seed(search.seed, seed_part),
                concurrency=settings.concurrency,
            ),
        )
        left_out, is_news = left_out_for(search, phase)
        search_run = SearchRun.objects.create(
            search=search, run=run, phase=phase, left_out=left_out
        )
        if is_news:
            say(search, words(search.rubric_version, left_out), fence)
        payload = NewEvent("run", {"id": run.pk, "phase": phase, "label": label})
        tell(search, payload, fence)
        run_asked.send(sender=Search, search_run=search_run)
        start_run(run=run)
    return run
