"""What a climb hears from runs and gradings, inside the transaction that records the news."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone

from optimizer.models import Search, SearchRun, SearchState
from orchestrator.climbs.asking import settle_run
from orchestrator.climbs.curricula import learn_from
from orchestrator.climbs.harness_search import climb_of, note_run, note_words
from orchestrator.climbs.models import ClimbRun, Phase
from orchestrator.climbs.progress import note_progress
from orchestrator.climbs.services import pause_climb_for, queue_advance
from orchestrator.climbs.watch import queue_look, queue_watch
from orchestrator.grading.models import Regrade
from orchestrator.grading.signals import regrade_ended
from orchestrator.runs.models import Purpose, Rollout, Run
from orchestrator.runs.signals import rollout_ended, run_ended, run_progressed
from orchestrator.searches.signals import run_asked, search_said, search_stopped


def climb_run_of(run: Run) -> ClimbRun | None:
    return ClimbRun.objects.select_related("climb", "run").filter(Q(run=run)).first()


@receiver(run_ended, sender=Run)
def on_run_ended(run: Run, **_: Any) -> None:
    climb_run = climb_run_of(run)
    if climb_run is None:
        return
    settle_run(climb=climb_run.climb, run=run)
    is_of_training = climb_run.phase == Phase.TRAIN
    if not (is_of_training and run.purpose == Purpose.EVALUATE):  # held out: nothing to be gamed
        queue_watch(climb_run=climb_run)
    # A training job asks for the next step itself, and so does a search.
    if not is_of_training and climb_run.phase != Phase.SEARCH:
        queue_advance(climb_id=climb_run.climb_id, after=f"run-{run.pk}")


@receiver(rollout_ended, sender=Run)
def on_rollout_ended(run: Run, rollout: Rollout, **_: Any) -> None:
    # Kept on the run, whether there is one or none: many rollouts end in a second.
    climb_run = getattr(run, "climb_run", None)
    if climb_run is not None:
        learn_from(climb_id=climb_run.climb_id, rollout=rollout, left_out=climb_run.left_out)


@receiver(run_progressed, sender=Run)
def on_run_progressed(run: Run, done: int, planned: int, **_: Any) -> None:
    climb_run = climb_run_of(run)
    if climb_run is not None:
        note_progress(climb_run=climb_run, done=done, planned=planned)


@receiver(regrade_ended, sender=Regrade)
def on_regrade_ended(regrade: Regrade, **_: Any) -> None:
    queue_look(regrade=regrade)


@receiver(run_asked, sender=Search)
def on_run_asked(search_run: SearchRun, **_: Any) -> None:
    note_run(search_run)


@receiver(search_said, sender=Search)
def on_search_said(search: Search, text: str, **_: Any) -> None:
    note_words(search, text)


@receiver(search_stopped, sender=Search)
def on_search_stopped(search: Search, **_: Any) -> None:
    climb = climb_of(search)
    if climb is not None and search.state == SearchState.PAUSED and search.error:
        pause_climb_for(climb=climb, reason=search.error, fence=None)
    if climb is not None and search.has_ended:
        at = (search.ended_at or timezone.now()).timestamp()
        queue_advance(climb_id=climb.pk, after=f"search-{search.pk}-{at:.6f}")
