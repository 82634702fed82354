"""One rollout: an episode, the agent that acts in it, and the record of both.

Whatever goes wrong becomes the rollout's state with its reason; only an interruption (stop, cancel,
lost lease) leaves it open, and a slot that the server did not have after all sends it back into
the queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from optimizer.harness import Harness
from orchestrator import tracing
from orchestrator.agents.conversation import NOT_RUN
from orchestrator.agents.errors import ModelError
from orchestrator.agents.models import ModelEndpoint
from orchestrator.agents.types import Completion, Conversation, Message, Segment
from orchestrator.environments.admission import Lease, SlotRetractedError, Usage
from orchestrator.environments.episode import (
    Actions,
    EpisodeEvent,
    EpisodeResult,
    EpisodeState,
    View,
    run_episode,
)
from orchestrator.environments.errors import Cause
from orchestrator.environments.kinds import Kind
from orchestrator.environments.kinds.acting import Interface, interface_of
from orchestrator.environments.limits import EpisodeSettings
from orchestrator.environments.servers.spec import SaysWhyItEnded
from orchestrator.environments.serving import reset_params
from orchestrator.events.services import NewEvent
from orchestrator.runs.acting import (
    Said,
    expected_in,
    functions_of,
    words_of,
)
from orchestrator.runs.conditions import Remarks
from orchestrator.runs.grading import cause_of, grade_rollout, reads_state, state_of
from orchestrator.runs.models import Rollout, RolloutState
from orchestrator.runs.payloads import (
    action_payload,
    final_payload,
    observation_payload,
    refused_payload,
)
from orchestrator.runs.record import Announce, Ending, RolloutRecord
from orchestrator.runs.recorder import Posted, Recorder
from orchestrator.runs.seeds import derive_seed
from orchestrator.runs.skills import Loaded, Shelf, event_of, turn_of
from orchestrator.runs.transcripts import step_of
from rubrics.types import RubricSpec, Services, Step

STILL_RUNS = frozenset({Cause.STEP_TIMEOUT, Cause.RESET_TIMEOUT})
"""Ends after which the server works on: it keeps the slot until it is done."""
LOST = frozenset({Cause.SERVER_LOST, Cause.SESSION_LOST, Cause.ENV_UNREACHABLE})
"""Ends that may mean that the server has died."""
RECONNECTS = 2
"""How often a rollout asks for another slot when a server of ours could not be reached."""


@dataclass(frozen=True)
class RolloutPlan:
    """What a rollout is made of, read from the database before the event loop starts."""

    rollout: Rollout
    harness: Harness
    description: str
    """What the environment's author tells every agent."""
    settings: EpisodeSettings
    kind: Kind
    rubric: RubricSpec
    model: ModelEndpoint
    """The harness's, else the run's."""


@dataclass
class _Progress:
    """What has happened, for grading and totals."""

    steps: list[tuple[Posted, Step]] = field(default_factory=list)
    """Their sequence numbers are known once the events are committed."""
    interface: Interface | None = None
    """How the agent acts; known when the episode has started."""
    completion: Completion | None = None
    """Of the last turn."""
    shelf: Shelf | None = None
    """The skills that it may load; there once the episode has started."""
    turn: list[Said | Loaded] = field(default_factory=list)
    """What the model said last, in order."""
    to_send: list[Said] = field(default_factory=list)
    """Actions of the turn that were not sent yet."""
    action: Mapping[str, Any] = field(default_factory=dict)
    """Payload of the action that was sent last."""
    answers: list[list[Segment]] = field(default_factory=list)
    """What the actions of the turn brought, in their order."""
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    sent_at: float = 0.0
    is_in_flight: bool = False
    """The server works on a request."""
    final: Mapping[str, Any] | None = None
    """Payload of what the environment reported of its end."""


class AgentRollout:
    """Drives one rollout. `run` returns when it has ended or passes the interruption on."""

    def __init__(
        self,
        plan: RolloutPlan,
        conversation: Conversation,
        recorder: Recorder,
        remarks: Remarks,
        services: Services | None = None,
    ) -> None:
        """`services`: judges and code, for rubrics that need them."""
        self._services = services
        self._remarks = remarks
        self._plan = plan
        self._rollout = plan.rollout
        self._conversation = conversation
        self._record = RolloutRecord(plan.rollout, plan.rubric, recorder)
        self._progress = _Progress()
        self._started = time.monotonic()
        self._asked_at = time.monotonic()
        self._reconnects = 0
        self._lease: Lease | None = None
        self.has_begun = False
        """Whether it has had a slot."""

    async def queued(self, position: int, usage: Usage) -> None:
        """It waits for a slot of ours."""
        await self._record.wait(
            {
                "waited_s": round(time.monotonic() - self._asked_at, 1),
                "place": position,
                "active": usage.in_use,
                "maximum": usage.slots,
                "waiting": usage.waiting,
                "servers": usage.servers,
                "max_servers": usage.max_servers,
            }
        )

    async def run(self, lease: Lease, *, announce: Announce) -> None:
        """One episode with the lease, which is released here.

        Raises LeaseLost, SlotRetractedError (ask for another slot and call again), and whatever
        interrupts the task; any other failure is recorded.
        """
        self._lease, self.has_begun = lease, True
        await self._record.begin(
            self._messages(self._rollout.task.prompt)[:-1], model=self._plan.model
        )
        try:
            self._progress.is_in_flight = True
            result = await run_episode(
                lease.base_url,
                self._act,
                self._plan.settings,
                reset=reset_params(
                    self._rollout.task,
                    replicate=self._rollout.replicate,
                    seed=self._rollout.seed,
                ),
                hook=self._hear,
                reads_state=reads_state(self._plan.rubric),
                lists_tools=True,
            )
            self._progress.is_in_flight = result.cause in STILL_RUNS
        except ModelError as exc:
            self._progress.is_in_flight = False
            lease.release()
            await self._end_errored(exc.cause, exc.message, announce)
            return
        finally:
            lease.release(is_stuck=self._progress.is_in_flight)
        if result.cause in LOST:
            result = await self._with_last_words(lease, result)
        self._look_after_server(lease, result)
        if result.state is EpisodeState.SCORED:
            await self._end_graded(result, announce)
        else:
            cause = result.cause.value if result.cause is not None else "cancelled"
            await self._end_errored(cause, result.message, announce, result=result)

    async def _with_last_words(self, lease: Lease, result: EpisodeResult) -> EpisodeResult:
        """A server that ended may have met a limit of its sandbox: that is part of the fact."""
        server = lease.place.server
        if not isinstance(server, SaysWhyItEnded):
            return result
        words = await asyncio.to_thread(server.last_words)
        return replace(result, message=f"{result.message} {words}") if words else result

    def _look_after_server(self, lease: Lease, result: EpisodeResult) -> None:
        """A server that may have died is looked at before it gets another episode."""
        if result.cause not in LOST:
            return
        lease.suspect(is_unreachable=result.cause is Cause.ENV_UNREACHABLE)
        can_ask_again = lease.is_ours and self._reconnects < RECONNECTS
        if result.cause is Cause.ENV_UNREACHABLE and can_ask_again:
            # Nothing was sent yet.
            self._reconnects += 1
            raise SlotRetractedError(lease.number)

    # --- the agent ------------------------------------------------------------------------------

    async def _act(self, view: View) -> Actions:
        progress = self._progress
        if progress.interface is None:
            progress.interface = await self._begin(view)
        else:
            await self._tell(view.rejection)
        while True:
            await self._ask(progress.interface)
            if progress.to_send:
                return [said.action for said in progress.to_send]
            # The harness has answered all of it: the environment has heard nothing.
            await self._tell()

    async def _ask(self, interface: Interface) -> None:
        progress = self._progress
        progress.turns += 1
        seed = derive_seed(self._rollout.seed, progress.turns)
        completion = await self._conversation.act(seed=seed)
        progress.tokens_in += completion.tokens_in
        progress.tokens_out += completion.tokens_out
        progress.completion, progress.answers = completion, []
        assert progress.shelf is not None, "made with the interface"
        progress.turn = turn_of(completion, interface, progress.shelf)
        for said in progress.turn:
            if isinstance(said, Loaded):
                self._record.post(event_of(said))
        progress.to_send = [said for said in progress.turn if isinstance(said, Said)]

    async def _tell(self, rejection: str = "") -> None:
        """Tells the model what its last reply has brought."""
        progress = self._progress
        assert progress.completion is not None
        if progress.completion.calls:
            await self._conversation.observe_calls(self._answers())
        elif rejection:
            await self._conversation.observe([Segment("warning", f"({rejection})")])
        else:
            await self._conversation.observe(self._answers()[-1])

    def _answers(self) -> list[list[Segment]]:
        """One for each thing that the turn said: of the harness, or of the environment."""
        brought = iter(self._progress.answers)
        return [
            [Segment("scaffold", said.content)]
            if isinstance(said, Loaded)
            else next(brought, [Segment("scaffold", NOT_RUN)])
            for said in self._progress.turn
        ]

    async def _begin(self, view: View) -> Interface:
        """Tells the agent its task and how to act."""
        harness = self._plan.harness
        interface = interface_of(self._plan.kind, view.schema, view.tools)
        words = words_of(harness)
        self._remark_on_tools(words.keys() - {tool.name for tool in interface.tools})
        interface = interface.described(words)
        calls = bool(interface.tools) and await self._conversation.takes_functions()
        functions = functions_of(interface) if calls else []
        shelf = Shelf(
            harness,
            taken={tool.name for tool in interface.tools} | {f.name for f in functions},
            calls=calls,
        )
        functions += shelf.functions
        text = "" if functions else interface.instructions
        told = {"functions": [function.as_json() for function in functions], "text": text}
        if shelf.loading:
            told["skills"] = shelf.loading
        if functions or text or shelf.loading:
            self._record.post(NewEvent("told", told))
        messages = self._messages(
            self._prompt(view.observation), actions=text, loading=shelf.loading
        )
        await self._conversation.start(messages, functions)
        self._progress.shelf = shelf
        return interface

    def _messages(self, text: str, **how: str) -> list[Message]:
        task = self._rollout.task
        return self._plan.harness.messages(text, prompt=task.prompt, key=task.key, **how)

    def _remark_on_tools(self, unknown: Collection[str]) -> None:
        for name in sorted(unknown):
            self._remarks.add(
                "harness.tools",
                f"{self._rollout.harness.short} describes a tool {name!r:.80} in tools.json, "
                "which the environment does not have; nobody was told of it.",
            )

    def _prompt(self, observation: Mapping[str, Any]) -> str:
        """The environment's description and the task; for environments that pose it themselves,
        what they showed at the start.
        """
        segments = self._segments(observation)
        is_nothing = all(segment.kind == "scaffold" for segment in segments)
        shown = "" if is_nothing else "".join(segment.text for segment in segments)
        task = self._rollout.task.prompt
        if shown and task not in shown:
            shown = f"{task}\n\n{shown}" if task else shown
        parts = (self._plan.description.strip(), shown or task)
        return "\n\n".join(part for part in parts if part)

    def _segments(self, observation: Mapping[str, Any]) -> list[Segment]:
        pieces = self._plan.kind.segments(observation)
        return [Segment(piece["kind"], piece["text"]) for piece in pieces]

    # --- the record -----------------------------------------------------------------------------

    async def _hear(self, event: EpisodeEvent) -> None:
        progress, payload = self._progress, event.payload
        if event.kind == "action":
            said = progress.to_send.pop(0)
            sent = NewEvent("action", action_payload(payload["step"], said, payload["action"]))
            progress.action = sent.payload
            # On its way into the log while the server works on it; what it brings waits for that.
            self._record.post(sent)
            progress.sent_at = time.monotonic()
            progress.is_in_flight = True
        elif event.kind == "step":
            progress.is_in_flight = False
            await self._record.flush()
            self._hear_step(payload)
        elif event.kind == "final_state":
            progress.final = final_payload(payload)
            self._record.post(NewEvent("final_state", progress.final))
        elif event.kind == "rejected":
            progress.is_in_flight = False
            progress.answers.append([Segment("warning", f"({payload['reason']})")])
            self._record.post(NewEvent("observation", refused_payload(payload)))
        elif event.kind == "not_sent":
            self._record.post(NewEvent("not_sent", {"actions": payload["actions"]}))
        elif event.kind == "reset":
            await self._hear_reset()
        elif event.kind == "waiting" and self._lease is not None:
            self._lease.refused(waited_s=payload["waited_s"], maximum=payload["maximum"])
            await self._record.wait({**payload, "waited_s": round(payload["waited_s"], 1)})

    async def _hear_reset(self) -> None:
        self._progress.is_in_flight = False
        if self._lease is not None:
            self._lease.started()
        if self._rollout.state == RolloutState.PENDING:
            await self._record.begin()

    def _hear_step(self, payload: Mapping[str, Any]) -> None:
        progress = self._progress
        segments = self._segments(payload["observation"])
        progress.answers.append(segments)
        took_s = time.monotonic() - progress.sent_at
        tracing.record("environment step", took_s, {"step": len(progress.steps) + 1})
        told = NewEvent("observation", observation_payload(payload, segments, took_s))
        posted = self._record.post(told)
        progress.steps.append((posted, step_of(progress.action, told.payload, seq=0)))

    async def _end_errored(
        self, cause: str, message: str, announce: Announce, result: EpisodeResult | None = None
    ) -> None:
        details = {}
        if result is not None:
            details = {"claimed_reward": result.claimed_reward, "raw": result.raw}
        await self._end(
            announce,
            state=RolloutState.ERRORED,
            cause=cause,
            message=message or f"The rollout ended without a reason ({cause}).",
            n_steps=len(self._progress.steps) if result is None else result.n_steps,
            details={key: value for key, value in details.items() if value not in (None, "")},
        )

    async def _end_graded(self, result: EpisodeResult, announce: Announce) -> None:
        progress, task = self._progress, self._rollout.task
        await self._record.flush()
        wall_s = time.monotonic() - self._started
        graded = await grade_rollout(
            spec=self._plan.rubric,
            services=self._services,
            steps=[replace(step, seq=posted.done.result()) for posted, step in progress.steps],
            reward=result.reward,
            task=task.prompt,
            family=task.family,
            wall_s=wall_s,
            tokens=progress.tokens_in + progress.tokens_out,
            expected=expected_in(task.spec),
            cost_usd=self._cost_usd,
            final=progress.final,
        )
        await self._end(
            announce,
            state=state_of(graded.score),
            score=graded.score.value,
            reward=result.reward,
            cause=cause_of(graded.score),
            message=result.note or graded.score.reason,
            n_steps=result.n_steps,
            latency_s=wall_s,
            graded=graded,
            details={"is_truncated": True} if result.is_truncated else {},
        )

    @property
    def _cost_usd(self) -> float:
        progress, model = self._progress, self._plan.model
        cost_in = progress.tokens_in * model.price_in_usd_per_mtok
        cost_out = progress.tokens_out * model.price_out_usd_per_mtok
        return (cost_in + cost_out) / 1e6

    async def _end(self, announce: Announce, **ending: Any) -> None:
        progress = self._progress
        ending.setdefault("latency_s", time.monotonic() - self._started)
        answers = [step.answer for _, step in progress.steps if step.answer is not None]
        await self._record.end(
            Ending(
                **ending,
                answer=answers[-1] if answers else "",
                tokens_in=progress.tokens_in,
                tokens_out=progress.tokens_out,
                cost_usd=self._cost_usd,
                tracks=self._conversation.tracks(),
            ),
            announce,
        )
