"""What a search hears, inside the transaction that records the news."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from optimizer.models import Proposal, SearchRun
from orchestrator.proposing.signals import proposal_answered
from orchestrator.runs.models import Run
from orchestrator.runs.signals import run_ended, run_progressed
from orchestrator.searches.progress import note_progress
from orchestrator.searches.queueing import queue_advance
from orchestrator.searches.rounds import note_edits, tell_proposal
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.spending import settle_run


def search_run_of(run: Run) -> SearchRun | None:
    return SearchRun.objects.select_related("search", "run").filter(run=run).first()


@receiver(run_ended, sender=Run)
def on_run_ended(run: Run, **_: Any) -> None:
    search_run = search_run_of(run)
    if search_run is None:
        return
    settle_run(search_run=search_run)
    queue_advance(search_id=search_run.search_id, after=f"run-{run.pk}")


@receiver(run_progressed, sender=Run)
def on_run_progressed(run: Run, done: int, planned: int, **_: Any) -> None:
    search_run = search_run_of(run)
    if search_run is not None:
        note_progress(search_run=search_run, done=done, planned=planned)


@receiver(proposal_answered, sender=Proposal)
def on_proposal_answered(proposal: Proposal, **_: Any) -> None:
    if proposal.search.has_ended:
        return
    note_edits(proposal.search, SearchSettings.from_json(proposal.search.settings))
    tell_proposal(proposal)
    queue_advance(search_id=proposal.search_id, after=f"proposal-{proposal.pk}")
