"""One rollout: an episode, the agent that acts in it, and the record of both.

Events are committed as things happen: an action before it is sent, an observation before the agent
sees it, the verdicts together with the score. Whatever goes wrong becomes the rollout's state with
its reason; only an interruption (stop, cancel, lost lease) leaves it open for the next attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from optimizer.harness import Harness
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Completion, Conversation, Segment, TokenTrack
from orchestrator.environments.episode import (
    Action,
    Actions,
    EpisodeEvent,
    EpisodeResult,
    EpisodeState,
    View,
    run_episode,
)
from orchestrator.environments.kinds import Kind
from orchestrator.environments.kinds.acting import Interface, interface_of
from orchestrator.environments.serving import reset_params
from orchestrator.environments.session import EpisodeSettings
from orchestrator.events.services import NewEvent
from orchestrator.runs.acting import Said, answer_in, form_of, functions_of, said_in, text_in
from orchestrator.runs.grading import Graded, grade_rollout
from orchestrator.runs.models import Rollout, RolloutState, TokenRow, VerdictRecord
from orchestrator.runs.queries import ended_payload
from orchestrator.runs.recorder import Recorder, Write
from orchestrator.runs.seeds import derive_seed
from rubrics.types import RubricSpec, Step

Announce = Callable[[Rollout], Mapping[int, Sequence[NewEvent]]]
"""Called inside the transaction that ends a rollout; gives the run's own events by stream."""

KEPT_CHARS = 8_000
"""Longer texts are shortened in events; the action that was sent is not."""


@dataclass(frozen=True)
class RolloutPlan:
    """What a rollout is made of, read from the database before the event loop starts."""

    rollout: Rollout
    harness: Harness
    base_url: str
    settings: EpisodeSettings
    kind: Kind
    rubric: RubricSpec
    price_in: float
    """USD per million tokens."""
    price_out: float


@dataclass
class _Progress:
    """What has happened, for grading and totals."""

    steps: list[Step] = field(default_factory=list)
    interface: Interface | None = None
    """How the agent acts; known when the episode has started."""
    completion: Completion | None = None
    """Of the last turn."""
    to_send: list[Said] = field(default_factory=list)
    """Actions of the turn that were not sent yet."""
    action: Action = field(default_factory=dict)
    text: str = ""
    answers: list[list[Segment]] = field(default_factory=list)
    """What the actions of the turn brought, in their order."""
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    sent_at: float = 0.0


class AgentRollout:
    """Drives one rollout. `run` returns when it has ended or passes the interruption on."""

    def __init__(self, plan: RolloutPlan, conversation: Conversation, recorder: Recorder) -> None:
        self._plan = plan
        self._rollout = plan.rollout
        self._conversation = conversation
        self._recorder = recorder
        self._progress = _Progress()
        self._started = time.monotonic()
        self._first_text = ""

    async def run(self, *, announce: Announce) -> None:
        """Raises LeaseLost, and whatever interrupts the task; any other failure is recorded."""
        await self._record_start()
        task = self._rollout.task
        try:
            result = await run_episode(
                self._plan.base_url,
                self._act,
                self._plan.settings,
                reset=reset_params(
                    task, replicate=self._rollout.replicate, seed=self._rollout.seed
                ),
                hook=self._hear,
                lists_tools=True,
            )
        except ModelError as exc:
            await self._end_errored(exc.cause, exc.message, announce)
            return
        if result.state is EpisodeState.SCORED:
            await self._end_graded(result, announce)
        else:
            cause = result.cause.value if result.cause is not None else "cancelled"
            await self._end_errored(cause, result.message, announce, n_steps=result.n_steps)

    # --- the agent ------------------------------------------------------------------------------

    async def _act(self, view: View) -> Actions:
        progress = self._progress
        if progress.completion is None or progress.interface is None:
            progress.interface = await self._begin(view)
        elif progress.completion.calls:
            await self._conversation.observe_calls(progress.answers)
        elif view.rejection:
            await self._conversation.observe([Segment("warning", f"({view.rejection})")])
        else:
            await self._conversation.observe(self._segments(view.observation))
        progress.turns += 1
        seed = derive_seed(self._rollout.seed, progress.turns)
        completion = await self._conversation.act(seed=seed)
        progress.tokens_in += completion.tokens_in
        progress.tokens_out += completion.tokens_out
        progress.completion, progress.answers = completion, []
        progress.to_send = said_in(completion, progress.interface)
        return [said.action for said in progress.to_send]

    async def _begin(self, view: View) -> Interface:
        """Tells the agent its task and how to act."""
        harness = self._plan.harness
        interface = interface_of(self._plan.kind, view.schema, view.tools)
        interface = interface.described(
            {tool["name"]: tool["description"] for tool in harness.tools if "description" in tool}
        )
        functions = []
        if interface.tools and await self._conversation.takes_functions():
            functions = functions_of(interface)
        text = "" if functions else interface.instructions
        if functions or text:
            await self._append(
                NewEvent("told", {"functions": [f.as_json() for f in functions], "text": text})
            )
        messages = harness.messages(self._prompt(view.observation), actions=text)
        await self._conversation.start(messages, functions)
        return interface

    def _prompt(self, observation: Mapping[str, Any]) -> str:
        """The task; for environments that pose it themselves, what they showed at the start."""
        segments = self._segments(observation)
        is_nothing = all(segment.kind == "scaffold" for segment in segments)
        shown = "" if is_nothing else "".join(segment.text for segment in segments)
        prompt = self._rollout.task.prompt
        return prompt if prompt in shown or not shown else f"{prompt}\n\n{shown}"

    def _action_payload(self, step: int, said: Said) -> dict[str, Any]:
        """The first action of a turn carries what the turn has cost."""
        action, completion = said.action, said.completion
        logprobs = completion.logprobs if completion is not None else ()
        return {
            "step": step,
            "text": kept(said.text),
            "form": form_of(action),
            "command": kept(text_in(action, "command")),
            "answer": kept(answer_in(action)),
            "tokens": completion.tokens_out if completion is not None else 0,
            "logprob": sum(logprobs) if logprobs else None,
            "latency_s": round(completion.latency_s, 3) if completion is not None else 0.0,
            "finish_reason": completion.finish_reason if completion is not None else "",
        }

    def _segments(self, observation: Mapping[str, Any]) -> list[Segment]:
        pieces = self._plan.kind.segments(observation)
        return [Segment(piece["kind"], piece["text"]) for piece in pieces]

    # --- the record -----------------------------------------------------------------------------

    async def _hear(self, event: EpisodeEvent) -> None:
        progress = self._progress
        if event.kind == "action":
            said = progress.to_send.pop(0)
            progress.action, progress.text = said.action, said.text
            payload = self._action_payload(event.payload["step"], said)
            await self._append(NewEvent("action", payload))
            progress.sent_at = time.monotonic()
        elif event.kind == "step":
            await self._hear_step(event.payload)
        elif event.kind == "rejected":
            reason = event.payload["reason"]
            progress.answers.append([Segment("warning", f"({reason})")])
            await self._append(
                NewEvent(
                    "observation",
                    {
                        "step": event.payload["step"],
                        "segments": [{"kind": "warning", "text": f"({reason})"}],
                        "refused": True,
                        "reward": None,
                        "done": False,
                    },
                )
            )
        elif event.kind == "waiting":
            await self._append(NewEvent("waiting", dict(event.payload)))

    async def _hear_step(self, payload: Mapping[str, Any]) -> None:
        observation = payload["observation"]
        segments = self._segments(observation)
        self._progress.answers.append(segments)
        action, exit_status = self._progress.action, whole_number(observation.get("exit_status"))
        seq = await self._append(
            NewEvent(
                "observation",
                {
                    "step": payload["step"],
                    "segments": [{"kind": s.kind, "text": kept(s.text)} for s in segments],
                    "exit_status": exit_status,
                    "truncated": bool(observation.get("truncated")) or payload["is_shortened"],
                    "reward": payload["reward"],
                    "done": payload["done"],
                    "latency_s": round(time.monotonic() - self._progress.sent_at, 3),
                },
            )
        )
        self._progress.steps.append(
            Step(
                index=payload["step"],
                seq=seq,
                action=self._progress.text,
                command=text_in(action, "command"),
                answer=answer_in(action),
                output="".join(s.text for s in segments if s.kind == "env_output"),
                exit_status=exit_status,
                reward=payload["reward"],
                done=payload["done"],
            )
        )

    async def _append(self, event: NewEvent) -> int:
        """Commits one event and returns its sequence number."""
        stream_id = self._rollout.stream_id
        return await self._recorder.append(stream_id, [event])

    async def _record_start(self) -> None:
        rollout, plan = self._rollout, self._plan
        run = rollout.run
        is_again = rollout.attempt > 0
        attempt = rollout.attempt + 1
        events = []
        if is_again:
            events.append(
                NewEvent(
                    "rollout.restarted",
                    {"attempt": attempt, "reason": "its worker stopped before it had ended"},
                )
            )
        events.append(
            NewEvent(
                "rollout.started",
                {
                    "attempt": attempt,
                    "task": rollout.task.key,
                    "family": rollout.task.family,
                    "prompt": rollout.task.prompt,
                    "harness": rollout.harness.short,
                    "model": run.model.name,
                    "weight_version": run.adapter_name or run.model.model,
                    "seed": rollout.seed,
                    "messages": plan.harness.messages(rollout.task.prompt)[:-1],
                },
            )
        )

        def apply() -> dict[int, Sequence[NewEvent]]:
            rollout.attempt = attempt
            rollout.state = RolloutState.RUNNING
            rollout.started_at = timezone.now()
            rollout.save(update_fields=["attempt", "state", "started_at"])
            return {rollout.stream_id: events}

        await self._recorder.record(Write(apply))

    async def _end_errored(
        self, cause: str, message: str, announce: Announce, n_steps: int | None = None
    ) -> None:
        steps = len(self._progress.steps) if n_steps is None else n_steps
        await self._end(
            announce,
            state=RolloutState.ERRORED,
            score=None,
            reward=None,
            cause=cause,
            message=message or f"The rollout ended without a reason ({cause}).",
            n_steps=steps,
            graded=None,
        )

    async def _end_graded(self, result: EpisodeResult, announce: Announce) -> None:
        progress, task = self._progress, self._rollout.task
        graded = grade_rollout(
            spec=self._plan.rubric,
            steps=progress.steps,
            reward=result.reward,
            task=task.prompt,
            family=task.family,
            wall_s=time.monotonic() - self._started,
            tokens=progress.tokens_in + progress.tokens_out,
            expected=task.spec.get("answer"),
        )
        await self._end(
            announce,
            state=RolloutState(graded.score.state.value),
            score=graded.score.value,
            reward=result.reward,
            cause="" if graded.score.value is not None else "grading",
            message=result.note or graded.score.reason,
            n_steps=result.n_steps,
            graded=graded,
        )

    async def _end(
        self,
        announce: Announce,
        *,
        state: RolloutState,
        score: float | None,
        reward: float | None,
        cause: str,
        message: str,
        n_steps: int,
        graded: Graded | None,
    ) -> None:
        """Score, verdicts, tokens and events in one transaction."""
        rollout, progress = self._rollout, self._progress
        answers = [step.answer for step in progress.steps if step.answer is not None]
        latency_s = time.monotonic() - self._started
        tracks = self._conversation.tracks()

        def apply() -> dict[int, Sequence[NewEvent]]:
            rollout.state = state
            rollout.score, rollout.reward = score, reward
            rollout.cause, rollout.message = cause, message
            rollout.answer = (answers[-1] if answers else "")[:2000]
            rollout.n_steps = n_steps
            rollout.tokens_in, rollout.tokens_out = progress.tokens_in, progress.tokens_out
            rollout.cost_usd = (
                progress.tokens_in * self._plan.price_in
                + progress.tokens_out * self._plan.price_out
            ) / 1e6
            rollout.latency_s = latency_s
            rollout.weight_version = tracks[-1].weight_version if tracks else ""
            rollout.ended_at = timezone.now()
            rollout.save()
            events = self._store_verdicts(graded)
            self._store_tokens(tracks)
            events.append(NewEvent("rollout.ended", ended_payload(rollout)))
            return {rollout.stream_id: events, **announce(rollout)}

        await self._recorder.record(Write(apply))

    def _store_verdicts(self, graded: Graded | None) -> list[NewEvent]:
        if graded is None:
            return []
        names = {c.id: c.label for c in self._plan.rubric.criteria}
        VerdictRecord.objects.filter(rollout=self._rollout).delete()
        VerdictRecord.objects.bulk_create(
            VerdictRecord(
                rollout=self._rollout,
                criterion=verdict.criterion,
                name=names[verdict.criterion],
                state=verdict.state.value,
                value=verdict.value,
                reason=verdict.reason,
                cites=list(verdict.cites),
            )
            for verdict in graded.verdicts
        )
        return [
            NewEvent(
                "verdict",
                {
                    "criterion": verdict.criterion,
                    "name": names[verdict.criterion],
                    "state": verdict.state.value,
                    "value": verdict.value,
                    "reason": verdict.reason,
                    "cites": list(verdict.cites),
                },
            )
            for verdict in graded.verdicts
        ]

    def _store_tokens(self, tracks: Sequence[TokenTrack]) -> None:
        TokenRow.objects.filter(rollout=self._rollout).delete()
        TokenRow.objects.bulk_create(
            TokenRow(
                rollout=self._rollout,
                index=index,
                ids=track.ids,
                kinds=run_lengths(track.kinds),
                logprobs=track.logprobs,
                weight_version=track.weight_version,
            )
            for index, track in enumerate(tracks)
        )


def whole_number(value: object) -> int | None:
    """A field of a foreign observation can be anything, NaN included, which no log can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def run_lengths(kinds: Sequence[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for kind in kinds:
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return runs


def kept(text: str | None) -> str | None:
    if text is None or len(text) <= KEPT_CHARS:
        return text
    return f"{text[:KEPT_CHARS]}\n[shortened: {len(text)} characters in all]"
