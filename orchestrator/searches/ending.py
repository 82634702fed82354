"""The ends of a search, and its pauses: conditional changes of state, each told once."""

from __future__ import annotations

from django.utils import timezone

from optimizer.models import ENDED_SEARCH_STATES, Search, SearchPhase, SearchState
from orchestrator.events.services import Fence, NewEvent
from orchestrator.jobs import services as jobs
from orchestrator.proposing.services import withdraw
from orchestrator.runs.models import ENDED_RUN_STATES
from orchestrator.searches.signals import search_stopped
from orchestrator.searches.telling import tell, tell_state


def complete_search(*, search: Search, verdict: str, fence: Fence | None = None) -> bool:
    """Needs a transaction. False if it had ended before.

    Pausing lets work in hand end: a pause that comes with the last verdict changes nothing.
    """
    return _end(search, SearchState.COMPLETED, "", fence, phase=SearchPhase.DONE, progress=1.0)


def fail_search(*, search: Search, error: str, fence: Fence | None = None) -> bool:
    """Needs a transaction."""
    return _end(search, SearchState.FAILED, error, fence)


def end_cancelled(*, search: Search) -> bool:
    """Needs a transaction."""
    return _end(search, SearchState.CANCELLED, "", None)


def _end(
    search: Search, state: SearchState, error: str, fence: Fence | None, **changes: object
) -> bool:
    ended = (
        Search.objects.filter(pk=search.pk)
        .exclude(state__in=ENDED_SEARCH_STATES)
        .update(state=state, error=error, doing="", ended_at=timezone.now(), **changes)
    )
    if not ended:
        return False
    search.refresh_from_db()
    if "phase" in changes:
        tell(search, NewEvent("phase", {"phase": changes["phase"]}), fence)
    tell_state(search, state, error, fence)
    withdraw(search=search, reason=f"The search is {search.get_state_display()}.")
    search_stopped.send(sender=Search, search=search)
    return True


def pause_for(*, search: Search, reason: str, fence: Fence | None = None) -> bool:
    """Needs a transaction. `reason` stays on the search until it goes on."""
    paused = Search.objects.filter(
        pk=search.pk, state__in=(SearchState.QUEUED, SearchState.RUNNING)
    ).update(state=SearchState.PAUSED, error=reason)
    if not paused:
        return False
    search.refresh_from_db()
    tell_state(search, SearchState.PAUSED, reason, fence)
    search_stopped.send(sender=Search, search=search)
    return True


def cancel_runs(search: Search) -> None:
    """Of a search that has ended; those that have ended too stay as they are."""
    for asked in search.search_runs.exclude(run__state__in=ENDED_RUN_STATES).select_related(
        "run__job"
    ):
        if asked.run.job is not None:
            jobs.cancel(job=asked.run.job)
