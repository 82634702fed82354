"""A search moves by short jobs, one for each event that it waits for."""

from __future__ import annotations

from orchestrator.jobs import services as jobs

JOB_KIND = "searches.advance"


def queue_advance(*, search_id: int, after: str) -> None:
    """Moves the search once for the event named by `after`."""
    jobs.enqueue(
        kind=JOB_KIND,
        spec={"search_id": search_id},
        key=f"search-{search_id}-after-{after}",
        max_attempts=10,
    )
