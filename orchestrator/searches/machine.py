"""The course of a search: what it does next, and when it stops.

    preflight   the scorer works and repeats itself
    evidence    the seed alone: its noise floor, what it does by itself
    search      the engine, by replay over the rollouts and proposals that exist
    certify     fresh pairs on select tasks
    test        the sealed test, read once
    done        waits for approval, or nothing is to approve

`advance` does what is missing and returns as soon as it waits for something: a run, a proposer or a
person, who call again. Whatever it asks for carries a key made of the search and a number, so that
the same question after a kill finds the same run. Every change holds the fence of the job.
"""

from __future__ import annotations

import hashlib
import json

from django.db import transaction
from django.utils import timezone

from optimizer.engines.contract import Doing, Phase
from optimizer.errors import SearchInvalid
from optimizer.models import (
    ENDED_SEARCH_STATES,
    HarnessVersion,
    Search,
    SearchPhase,
    SearchState,
)
from optimizer.search_plan import Finished, NeedEdits, NeedRollouts, next_step
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import Fence, NewEvent
from orchestrator.judging.accounts import BudgetExceeded
from orchestrator.runs.limits import LimitReached
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.searches import fingerprints, preflight, retries, sealed
from orchestrator.searches.asking import ask_for_run, hold
from orchestrator.searches.conclusions import conclude, note_candidates, seed_candidate
from orchestrator.searches.ending import cancel_runs, complete_search, fail_search, pause_for
from orchestrator.searches.planning import plan_of
from orchestrator.searches.rounds import Rounds, ask_round
from orchestrator.searches.rows import barren_runs, planned, rows_of
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.signals import search_stopped
from orchestrator.searches.telling import say, tell, tell_state

PHASES = {
    Phase.EVIDENCE: SearchPhase.EVIDENCE,
    Phase.TWIN: SearchPhase.EVIDENCE,
    Phase.SCREEN: SearchPhase.SEARCH,
    Phase.RACE: SearchPhase.SEARCH,
    Phase.CERTIFY: SearchPhase.CERTIFY,
    Phase.MODELS: SearchPhase.CERTIFY,
}
LABELS = {
    Phase.EVIDENCE: "Watching the seed harness",
    Phase.TWIN: "Seed against seed",
    Phase.SCREEN: "Screening edits",
    Phase.RACE: "Racing bundles",
    Phase.CERTIFY: "Certifying on unseen tasks",
    Phase.MODELS: "Choosing among models",
}
STOPPED = (SearchState.PAUSED, SearchState.AWAITING_APPROVAL)


def advance(*, search_id: int, fence: Fence) -> None:
    """Moves the search as far as it goes without waiting. Safe to call at any time.

    Raises LeaseLost, Cancelled.
    """
    while True:
        search = Search.objects.select_related(
            "project", "seed_harness", "model", "environment_version", "rubric_version"
        ).get(pk=search_id)
        if search.state == SearchState.CANCELLED:
            cancel_runs(search)
        if search.has_ended or search.state in STOPPED:
            return
        _mark_started(search, fence)
        if problem := fingerprints.changed(search):
            _fail(search, problem, fence)
            return
        settings = SearchSettings.from_json(search.settings)
        try:
            if not _move(search, settings, fence):
                return
        except LimitReached as exc:
            with transaction.atomic():
                hold(search, fence)
                pause_for(search=search, reason=str(exc), fence=fence)
            return
        except BudgetExceeded as exc:
            _budget_is_spent(search, settings, str(exc), fence)
            return
        except SearchInvalid as exc:
            _fail(search, str(exc), fence)
            return


def _move(search: Search, settings: SearchSettings, fence: Fence) -> bool:
    if search.phase == SearchPhase.PREFLIGHT:
        return _preflight(search, settings, fence)
    if search.phase == SearchPhase.TEST:
        return _sealed_test(search, settings, fence)
    if search.phase == SearchPhase.DONE:
        return False
    return _step(search, settings, fence)


def _mark_started(search: Search, fence: Fence) -> None:
    if search.state != SearchState.QUEUED:
        return
    with transaction.atomic():
        hold(search, fence)
        started = Search.objects.filter(pk=search.pk, state=SearchState.QUEUED).update(
            state=SearchState.RUNNING, started_at=timezone.now()
        )
        if started:
            tell_state(search, SearchState.RUNNING, fence=fence)


def _preflight(search: Search, settings: SearchSettings, fence: Fence) -> bool:
    found = preflight.check_scorer(search=search, settings=settings, fence=fence)
    if isinstance(found, Run):
        return False
    if found:
        _fail(search, found, fence)
        return False
    with transaction.atomic():
        hold(search, fence)
        seed_candidate(search)
    return _enter(search, SearchPhase.EVIDENCE, fence)


def _step(search: Search, settings: SearchSettings, fence: Fence) -> bool:
    """One look at what exists: asks for what is missing, or concludes."""
    latest = search.search_runs.select_related("run").order_by("-id").first()
    if latest is not None:
        if not latest.run.has_ended:
            return False
        if _is_lost(search, settings, latest.run, fence):
            return False
        repeat = retries.repeat_lost(
            search=search, settings=settings, latest=latest.run, fence=fence
        )
        if repeat is not None and not repeat.has_ended:
            return False
    rows = rows_of(search)
    step = next_step(plan_of(search, settings), rows, Rounds(search, settings))
    if isinstance(step, NeedRollouts):
        with transaction.atomic():
            hold(search, fence)
            note_candidates(search, rows)
        _ask(search, settings, step, fence)
        return False
    if isinstance(step, NeedEdits):
        return ask_round(search=search, settings=settings, ask=step.ask, fence=fence)
    conclude(search=search, settings=settings, found=step, rows=rows, fence=fence)
    return _after_certificates(search, settings, step, fence)


def _ask(search: Search, settings: SearchSettings, step: NeedRollouts, fence: Fence) -> None:
    """One run with all that is missing."""
    phase = step.doing.phase
    _note_doing(search, step.doing, fence)
    splits = Task.objects.filter(
        version_id=search.environment_version_id, key__in={r.task for r in step.requests}
    ).values_list("split", flat=True)
    with transaction.atomic():
        hold(search, fence)
        ask_for_run(
            search=search,
            settings=settings,
            key=_key_of(search, step),
            phase=phase,
            label=LABELS[phase],
            purpose=Purpose.CERTIFY if Split.SELECT in set(splits) else Purpose.OPTIMISE,
            plan=planned(search, step.requests),
            # The same for all: both sides of a pair sample with the same seed.
            seed_part="search",
            fence=fence,
        )


def _key_of(search: Search, step: NeedRollouts) -> str:
    """The same question has the same key, whoever asks; another once its run came to nothing."""
    asked = json.dumps(sorted(request.key for request in step.requests))
    dead = barren_runs(search).count()
    digest = hashlib.sha256(asked.encode()).hexdigest()[:20]
    return f"{step.doing.phase}-{digest}-{dead}"


def _note_doing(search: Search, doing: Doing, fence: Fence) -> None:
    phase = PHASES[doing.phase]
    if search.phase != phase:
        _enter(search, phase, fence)
    Search.objects.filter(pk=search.pk).update(doing=doing.text[:200])


def _after_certificates(
    search: Search, settings: SearchSettings, found: Finished, fence: Fence
) -> bool:
    search.refresh_from_db()
    if search.outcome["shipped"] == search.seed_harness_id:
        return _complete(search, fence, verdict=str(found.verdict))
    if settings.test and not settings.is_part:
        return _enter(search, SearchPhase.TEST, fence)
    return _finish(search, settings, fence)


def _sealed_test(search: Search, settings: SearchSettings, fence: Fence) -> bool:
    harness = HarnessVersion.objects.get(pk=search.outcome["shipped"])
    run = sealed.ask_for_test(search=search, settings=settings, harness=harness, fence=fence)
    if not run.has_ended or _is_lost(search, settings, run, fence):
        return False
    tested = sealed.conclude_test(search=search, harness=harness, run=run, fence=fence)
    if tested.verdict == "regressed":
        return _complete(search, fence, verdict="regressed")
    return _finish(search, settings, fence)


def _finish(search: Search, settings: SearchSettings, fence: Fence) -> bool:
    """There is something to approve; a climb decides for itself."""
    if settings.is_part:
        return _complete(search, fence, verdict=str(search.outcome["verdict"]))
    with transaction.atomic():
        hold(search, fence)
        waits = Search.objects.filter(pk=search.pk, state=SearchState.RUNNING).update(
            state=SearchState.AWAITING_APPROVAL, phase=SearchPhase.DONE, progress=1.0, doing=""
        )
        if waits:
            tell(search, NewEvent("phase", {"phase": SearchPhase.DONE}), fence)
            tell_state(search, SearchState.AWAITING_APPROVAL, fence=fence)
            search_stopped.send(sender=Search, search=search)
    return False


def _complete(search: Search, fence: Fence, *, verdict: str) -> bool:
    with transaction.atomic():
        hold(search, fence)
        complete_search(search=search, verdict=verdict, fence=fence)
    return False


def _enter(search: Search, phase: SearchPhase, fence: Fence) -> bool:
    with transaction.atomic():
        hold(search, fence)
        moved = (
            Search.objects.filter(pk=search.pk)
            .exclude(state__in=ENDED_SEARCH_STATES)
            .exclude(phase=phase)
            .update(phase=phase, doing="")
        )
        if moved:
            tell(search, NewEvent("phase", {"phase": phase}), fence)
    return bool(moved)


def _is_lost(search: Search, settings: SearchSettings, run: Run, fence: Fence) -> bool:
    """A run that the search stands on came to nothing, and nobody has let it go on since."""
    if run.state not in (RunState.FAILED, RunState.CANCELLED):
        return False
    if search.resumed_at is not None and run.ended_at and run.ended_at < search.resumed_at:
        return False
    reason = f"{run.label} {run.get_state_display()}: {run.error}".strip(": ")
    if settings.is_part or run.state == RunState.FAILED:
        _fail(search, reason, fence)
    else:
        _pause(search, reason, fence)
    return True


def _fail(search: Search, error: str, fence: Fence) -> None:
    with transaction.atomic():
        hold(search, fence)
        fail_search(search=search, error=error, fence=fence)


def _budget_is_spent(search: Search, settings: SearchSettings, error: str, fence: Fence) -> None:
    """A person may raise the cap; in a climb there is nobody to ask."""
    if settings.is_part:
        _fail(search, error, fence)
        return
    _pause(search, error, fence)


def _pause(search: Search, reason: str, fence: Fence) -> None:
    with transaction.atomic():
        hold(search, fence)
        if pause_for(search=search, reason=reason, fence=fence):
            say(search, f"Paused: {reason}", fence)
