"""What grading may see of a rollout, from its log: the same in its run and at any time after.

A run makes each step from the payloads that it appends (`step_of`), and its transcript by the same
function (`assembled`) as whoever grades the rollout again. So a text that was cut in the log is cut
for its first grading too, and grading a past rollout by the rubric of its run gives the verdicts
that it has; a test holds this.

A transcript holds what an agent must not see: the expected answer and the environment's final
state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.events.models import Event
from orchestrator.runs.acting import expected_in
from orchestrator.runs.models import Rollout
from rubrics.types import Step, Transcript

FINAL_STATE = "final_state"
"""Event kind: what the environment reported of its end, {"components", "state"}."""
OUTSIDE = "outside"
"""Event kind: an event that came from outside; `said` is its content as a judge reads it."""
TRACE_REMOVED = "trace.removed"
"""Event kind: the only one of a rollout whose trace a rule of retention has let go."""
_READ_KINDS = ("rollout.restarted", "action", "observation", FINAL_STATE, OUTSIDE)
_ROLLOUTS_AT_ONCE = 200


def without_trace(rollouts: Iterable[Rollout]) -> set[int]:
    """Keys of those that cannot be graded or learnt from any more, whatever their score."""
    streams = {rollout.stream_id: rollout.pk for rollout in rollouts}
    found = Event.objects.filter(stream_id__in=list(streams), seq=1, kind=TRACE_REMOVED)
    return {streams[stream_id] for stream_id in found.values_list("stream_id", flat=True)}


def with_trace(rollouts: QuerySet[Rollout]) -> QuerySet[Rollout]:
    """Without those whose trace is gone."""
    gone = Event.objects.filter(stream=OuterRef("stream"), seq=1, kind=TRACE_REMOVED)
    return rollouts.filter(~Exists(gone))


def transcript_of(rollout: Rollout) -> Transcript:
    """Of one rollout; for several use `transcripts_of`."""
    return transcripts_of([rollout])[rollout.pk]


def transcripts_of(rollouts: Iterable[Rollout]) -> dict[int, Transcript]:
    """By rollout id, with one query for 200 of them if their tasks are loaded (select_related)."""
    listed = list(rollouts)
    found: dict[int, Transcript] = {}
    for start in range(0, len(listed), _ROLLOUTS_AT_ONCE):
        chunk = listed[start : start + _ROLLOUTS_AT_ONCE]
        logs: dict[int, list[tuple[int, str, Any]]] = defaultdict(list)
        rows = Event.objects.filter(
            stream_id__in=[rollout.stream_id for rollout in chunk], kind__in=_READ_KINDS
        ).order_by("stream_id", "seq")
        for stream_id, *event in rows.values_list("stream_id", "seq", "kind", "payload"):
            logs[stream_id].append((event[0], event[1], event[2]))
        found |= {rollout.pk: _transcript(rollout, logs[rollout.stream_id]) for rollout in chunk}
    return found


def assembled(
    *,
    steps: Sequence[Step],
    reward: float | None,
    task: str,
    family: str,
    expected: str | None,
    wall_s: float | None,
    tokens: int | None,
    cost_usd: float | None = None,
    final: Mapping[str, Any] | None = None,
) -> Transcript:
    """`final`: payload of the event `final_state`, if there is one."""
    answers = [step.answer for step in steps if step.answer is not None]
    final = final or {}
    return Transcript(
        steps=tuple(steps),
        answer=answers[-1] if answers else None,
        expected=expected,
        reward=reward,
        task=task,
        labels={"family": family},
        wall_s=wall_s,
        tokens=tokens,
        cost_usd=cost_usd,
        components=final.get("components") or {},
        state=final.get("state") or {},
    )


def step_of(action: Mapping[str, Any], observation: Mapping[str, Any], *, seq: int) -> Step:
    """From the payloads of an action and of what it brought, whose sequence number is `seq`."""
    segments = observation.get("segments") or ()
    return Step(
        index=observation["step"],
        seq=seq,
        action=action["text"],
        command=action.get("command"),
        answer=action.get("answer"),
        output="".join(s["text"] for s in segments if s["kind"] == "env_output"),
        exit_status=observation.get("exit_status"),
        reward=observation.get("reward"),
        done=bool(observation.get("done")),
        tool=action.get("tool"),
        arguments=action.get("arguments") or {},
        tool_error=observation.get("tool_error") or "",
    )


def _transcript(rollout: Rollout, log: Sequence[tuple[int, str, Any]]) -> Transcript:
    steps: list[Step] = []
    action: Mapping[str, Any] | None = None
    final: Mapping[str, Any] | None = None
    outside: list[tuple[int, int, Mapping[str, Any]]] = []
    for seq, kind, payload in log:
        if kind == "rollout.restarted":
            steps, action, final = [], None, None
        elif kind == FINAL_STATE:
            final = payload
        elif kind == OUTSIDE:
            outside.append((int(payload.get("position") or 0), seq, payload))
        elif kind == "action":
            action = payload
        elif action is not None:
            if not payload.get("refused"):
                steps.append(step_of(action, payload, seq=seq))
            action = None
    # In the order of their producer, as pages show them: they may have come in any other.
    for _, seq, payload in sorted(outside, key=lambda told: told[:2]):
        name, said = str(payload.get("name") or ""), str(payload.get("said") or "")
        steps.append(Step(index=len(steps) + 1, seq=seq, action=name, output=said))
    task = rollout.task
    return assembled(
        steps=steps,
        reward=rollout.reward,
        task=task.prompt,
        family=task.family,
        expected=expected_in(task.spec),
        wall_s=rollout.latency_s,
        tokens=rollout.tokens_in + rollout.tokens_out,
        cost_usd=rollout.cost_usd,
        final=final,
    )
