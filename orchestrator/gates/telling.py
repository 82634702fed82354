"""What a gate writes on its stream, and its ends: conditional changes of state, each told once."""

from __future__ import annotations

from django.utils import timezone

from orchestrator.events.services import Fence, NewEvent, append
from orchestrator.gates.deciding import Reason, Verdict
from orchestrator.gates.models import ENDED_GATE_STATES, Gate, GateState
from orchestrator.jobs import services as jobs
from orchestrator.runs.models import ENDED_RUN_STATES

JOB_KIND = "gates.advance"


def queue_advance(*, gate_id: int, after: str) -> None:
    """Moves the gate once for the event named by `after`."""
    jobs.enqueue(
        kind=JOB_KIND,
        spec={"gate_id": gate_id},
        key=f"gate-{gate_id}-after-{after}",
        max_attempts=10,
    )


def tell(gate: Gate, event: NewEvent, fence: Fence | None = None) -> None:
    """Needs a transaction."""
    append(stream_id=gate.stream_id, items=[event], fence=fence)


def end_decided(
    *, gate: Gate, verdict: Verdict, reason: Reason, sentence: str, fence: Fence | None = None
) -> bool:
    """Needs a transaction. False if it had ended before."""
    ended = (
        Gate.objects.filter(pk=gate.pk)
        .exclude(state__in=ENDED_GATE_STATES)
        .update(
            state=GateState.DECIDED,
            verdict=verdict,
            reason=reason,
            sentence=sentence,
            ended_at=timezone.now(),
        )
    )
    if ended:
        gate.refresh_from_db()
        _tell_end(gate, fence)
    return bool(ended)


def end_cancelled(*, gate: Gate) -> bool:
    """Needs a transaction."""
    ended = (
        Gate.objects.filter(pk=gate.pk)
        .exclude(state__in=ENDED_GATE_STATES)
        .update(state=GateState.CANCELLED, ended_at=timezone.now())
    )
    if ended:
        gate.refresh_from_db()
        _tell_end(gate, None)
    return bool(ended)


def _tell_end(gate: Gate, fence: Fence | None) -> None:
    ended = NewEvent(
        "gate.ended",
        {
            "state": gate.state,
            "verdict": gate.verdict,
            "reason": gate.reason,
            "sentence": gate.sentence,
        },
    )
    tell(gate, ended, fence)


def cancel_runs(gate: Gate) -> None:
    """Of a gate that has ended; those that have ended too stay as they are."""
    for asked in gate.gate_runs.exclude(run__state__in=ENDED_RUN_STATES).select_related("run__job"):
        if asked.run.job is not None:
            jobs.cancel(job=asked.run.job)
