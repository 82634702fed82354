"""The record of one rollout: its row, its events, its verdicts and tokens.

An action is handed over when it is sent, and is in the log before anybody hears what it brought.
That in turn is handed over at once, beside the agent's thinking, and is in the log before the next
observation is heard or a score is given: writes are committed in the order in which they were
given. A write that fails ends the rollout at the next write that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.utils import timezone

from orchestrator import measures
from orchestrator.agents.models import ModelEndpoint
from orchestrator.agents.types import Message, TokenTrack
from orchestrator.events.services import NewEvent
from orchestrator.runs.grading import Graded
from orchestrator.runs.models import Rollout, RolloutState, TokenRow, VerdictRecord
from orchestrator.runs.payloads import run_lengths
from orchestrator.runs.queries import ended_payload, rollout_row, started_payload
from orchestrator.runs.recorder import Posted, Recorder, Write
from rubrics.types import RubricSpec, Verdict


class Announce(Protocol):
    """What a run tells of its rollouts, inside the transaction that ends one; by stream."""

    def ended(self, rollout: Rollout) -> Mapping[int, Sequence[NewEvent]]:
        """Of this rollout."""

    def tally(self) -> Mapping[int, Sequence[NewEvent]]:
        """Of all; once for a transaction."""


@dataclass(frozen=True)
class Ending:
    """How a rollout ended and what it has used."""

    state: RolloutState
    cause: str
    message: str
    n_steps: int
    latency_s: float
    score: float | None = None
    reward: float | None = None
    answer: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    tracks: Sequence[TokenTrack] = ()
    graded: Graded | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the last event."""


def verdict_event(verdict: Verdict, name: str) -> NewEvent:
    return NewEvent(
        "verdict",
        {
            "criterion": verdict.criterion,
            "name": name,
            "state": verdict.state.value,
            "value": verdict.value,
            "reason": verdict.reason,
            "cites": list(verdict.cites),
        },
    )


class RolloutRecord:
    """Writes through the recorder of its run; belongs to one event loop."""

    def __init__(self, rollout: Rollout, rubric: RubricSpec, recorder: Recorder) -> None:
        self.rollout = rollout
        self._rubric = rubric
        self._recorder = recorder
        self._posted: list[Posted] = []
        self._has_begun = False

    async def begin(
        self, messages: Sequence[Message] = (), *, model: ModelEndpoint | None = None
    ) -> None:
        """The start, once; after a wait that came later, the end of the wait.

        `messages`: what the harness says before the task. `model`: where it is not the run's.
        """
        rollout = self.rollout
        events: list[NewEvent] = []
        if not self._has_begun:
            before = rollout.retry_of
            attempt = (before.attempt if before is not None else 0) + 1
            if before is not None:
                events.append(
                    NewEvent(
                        "rollout.restarted",
                        {"attempt": attempt, "reason": before.message, "rollout": before.pk},
                    )
                )
            started = started_payload(rollout, attempt, messages, model=model)
            events.append(NewEvent("rollout.started", started))
            rollout.attempt, rollout.started_at = attempt, timezone.now()
            self._has_begun = True
        rollout.state = RolloutState.RUNNING
        await self._save(events, "attempt", "state", "started_at")

    async def wait(self, payload: Mapping[str, Any]) -> None:
        """It waits for a slot; what waits is not running."""
        events = [NewEvent("waiting", dict(payload))]
        if self.rollout.state == RolloutState.RUNNING:
            self.rollout.state = RolloutState.PENDING
            await self._save(events, "state")
        else:
            await self._recorder.append(self.rollout.stream_id, events)

    async def append(self, event: NewEvent) -> None:
        """Commits an event, and with it everything that was handed over before."""
        await self._recorder.append(self.rollout.stream_id, [event])
        await self.flush()

    def post(self, event: NewEvent) -> Posted:
        """Hands an event over; it is committed before anything that is recorded later."""
        posted = self._recorder.post(self.rollout.stream_id, [event])
        self._posted.append(posted)
        return posted

    async def flush(self) -> None:
        """Returns when all that was handed over is committed; raises the first failure of it."""
        posted, self._posted = self._posted, []
        for one in posted:
            await one.done

    async def end(self, ending: Ending, announce: Announce) -> None:
        """Score, verdicts, tokens and events in one transaction."""
        await self.flush()
        rollout, tracks = self.rollout, ending.tracks

        def apply() -> dict[int, Sequence[NewEvent]]:
            rollout.state = ending.state
            rollout.score, rollout.reward = ending.score, ending.reward
            rollout.cause, rollout.message = ending.cause, ending.message
            rollout.answer = ending.answer[:2000]
            rollout.n_steps = ending.n_steps
            rollout.tokens_in, rollout.tokens_out = ending.tokens_in, ending.tokens_out
            rollout.cost_usd = ending.cost_usd
            rollout.latency_s = ending.latency_s
            rollout.weight_version = tracks[-1].weight_version if tracks else ""
            rollout.ended_at = timezone.now()
            rollout.save()
            events = self._store_verdicts(ending.graded)
            self._store_tokens(tracks)
            payload = {**ended_payload(rollout), **ending.details}
            if ending.state is RolloutState.JUDGING:
                # It has not ended for those who wait for its score.
                events.append(NewEvent("rollout.judging", payload))
                row = NewEvent("rollout", rollout_row(rollout))
                return {rollout.stream_id: events, rollout.run.stream_id: [row]}
            events.append(NewEvent("rollout.ended", payload))
            return {rollout.stream_id: events, **announce.ended(rollout)}

        await self._recorder.record(Write(apply, announce.tally))
        _count(ending)

    async def _save(self, events: Sequence[NewEvent], *fields: str) -> None:
        rollout = self.rollout
        values = {name: getattr(rollout, name) for name in fields}

        def apply() -> dict[int, Sequence[NewEvent]]:
            Rollout.everything.filter(pk=rollout.pk).update(**values)
            return {rollout.stream_id: events} if events else {}

        await self._recorder.record(Write(apply))

    def _store_verdicts(self, graded: Graded | None) -> list[NewEvent]:
        if graded is None:
            return []
        names = {c.id: c.label for c in self._rubric.criteria}
        VerdictRecord.objects.bulk_create(
            VerdictRecord(
                rollout=self.rollout,
                criterion=verdict.criterion,
                name=names[verdict.criterion],
                state=verdict.state.value,
                value=verdict.value,
                reason=verdict.reason,
                cites=list(verdict.cites),
                detail=dict(verdict.detail),
            )
            for verdict in graded.verdicts
        )
        return [verdict_event(verdict, names[verdict.criterion]) for verdict in graded.verdicts]

    def _store_tokens(self, tracks: Sequence[TokenTrack]) -> None:
        if not tracks:
            return
        TokenRow.objects.bulk_create(
            TokenRow(
                rollout=self.rollout,
                index=index,
                ids=track.ids,
                kinds=run_lengths(track.kinds),
                logprobs=track.logprobs,
                weight_version=track.weight_version,
            )
            for index, track in enumerate(tracks)
        )


def _count(ending: Ending) -> None:
    measures.ROLLOUTS_ENDED.labels(ending.state.value, ending.cause).inc()
    measures.TOKENS.labels("agent", "in").inc(ending.tokens_in)
    measures.TOKENS.labels("agent", "out").inc(ending.tokens_out)
    measures.COST_USD.labels("agent").inc(ending.cost_usd)
    for verdict in ending.graded.verdicts if ending.graded is not None else ():
        measures.VERDICTS.labels(verdict.state.value).inc()
