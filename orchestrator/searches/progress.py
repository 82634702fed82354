"""How far a search is, as a share of the rollouts that it may ask for; it never falls.

A search ends when its certificate is decided, so the share may jump to 1 from well below.
"""

from __future__ import annotations

from optimizer.models import Search, SearchRun
from orchestrator.events.services import NewEvent
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.spending import shares
from orchestrator.searches.telling import tell

ALMOST = 0.99


def note_progress(*, search_run: SearchRun, done: int, planned: int) -> None:
    """Needs a transaction. One event on the search's stream."""
    search = search_run.search
    if search.stream_id is None:
        return
    settings = SearchSettings.from_json(search.settings)
    finished = (
        Rollout.objects.filter(run__search_run__search=search)
        .exclude(state__in=OPEN_ROLLOUT_STATES)
        .count()
    )
    allowed = shares(search, settings)
    share = min(ALMOST, finished / max(1, allowed.total - allowed.retry))
    progress = max(search.progress, share)
    doing = f"{search_run.run.label}: {done} of {planned} rollouts"
    Search.objects.filter(pk=search.pk, progress__lt=progress).update(progress=progress)
    tell(
        search,
        NewEvent(
            "progress",
            {
                "phase": search_run.phase,
                "progress": progress,
                "doing": doing,
                "done": done,
                "total": planned,
            },
        ),
    )
