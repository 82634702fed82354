"""The rollout engine: all open rollouts of a run, many at a time, in one event loop.

A run's worker thread reads what is needed, then runs the loop. Rollouts that have no result yet are
attempted; the others are facts. Each waits for a slot of an environment server (`admission`) before
it begins. The loop is interrupted by cancel or a lost lease; what has no result then stays open. A
worker that stops begins no further rollout and lets those that have begun come to their end, for
`DRAIN_S` at most. A run ends when no rollout is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import asdict
from typing import Any

import structlog
from django.conf import settings
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from orchestrator import tracing
from orchestrator.agents.client import RETRY_FOR_S, ChatModel, LocalModel, ModelClient
from orchestrator.agents.conversation import ChatConversation, TokenConversation
from orchestrator.agents.functions import FunctionSupport
from orchestrator.agents.services import remember_tool_support
from orchestrator.agents.types import Conversation
from orchestrator.environments.admission import Gate, SlotRetractedError, admitted
from orchestrator.environments.errors import Cause, ServerStartError
from orchestrator.environments.servers.pool import ServerPool
from orchestrator.environments.serving import data_folder, server_spec
from orchestrator.events.services import LeaseLost, NewEvent
from orchestrator.jobs.errors import Cancelled, Stopped
from orchestrator.jobs.registry import JobContext
from orchestrator.jobs.threads import in_thread
from orchestrator.judging.purses import purse_of_run
from orchestrator.judging.services import grading_services
from orchestrator.runs import queries
from orchestrator.runs.conditions import keep_decisions, note_conditions
from orchestrator.runs.grading import needs_services
from orchestrator.runs.groups import judge_groups
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, Run
from orchestrator.runs.payloads import capacity_payload
from orchestrator.runs.preparing import Prepared, prepare
from orchestrator.runs.purse import CappedConversation, purse_of
from orchestrator.runs.record import Announce
from orchestrator.runs.recorder import Recorder, Write
from orchestrator.runs.recovery import replace_lost_rollouts
from orchestrator.runs.rollout import AgentRollout, RolloutPlan
from orchestrator.runs.services import end_failed_run, finish_run, mark_running
from orchestrator.runs.signals import rollout_ended, run_progressed
from rubrics.types import Services

WATCH_S = 0.2
"""How soon a loop notices that it should end."""
TELL_CAPACITY_S = 1.0
"""At most this often a run tells how full its servers are."""
MODEL_PATIENCE_S = RETRY_FOR_S
"""How long a rollout waits for a model that is away before it gives up."""
MAX_ADMISSIONS = 20
"""How often the slot of a rollout may be taken back before it has begun."""

log = structlog.get_logger(__name__)
servers = ServerPool(data_folder(), idle_s=settings.SERVER_IDLE_S)


def execute_run(*, run: Run, ctx: JobContext) -> None:
    """Attempts every open rollout of the run and ends it.

    Raises:
        LeaseLost, Cancelled, Stopped: interrupted; open rollouts stay open.
    """
    if run.has_ended:
        return
    mark_running(run=run, fence=ctx.fence)
    replace_lost_rollouts(run=run, fence=ctx.fence)
    with ExitStack() as stack:
        try:
            note_conditions(run=run, fence=ctx.fence)
            spec = server_spec(run.environment_version)
            prepared = prepare(run)
            # Held until the stack closes, so that the servers of this run are not idle.
            stack.enter_context(servers.server(spec))
        except (ServerStartError, ValueError) as exc:
            end_failed_run(run=run, error=str(exc), fence=ctx.fence)
            return
        stack.callback(keep_decisions, run)
        if prepared.plans:
            asyncio.run(_run_all(prepared, servers.gate(spec), ctx))
    ctx.check()
    judge_groups(run=run, ctx=ctx, announce=RunAnnounce(run, ctx))
    ctx.check()
    finish_run(run=run, fence=ctx.fence)


async def _run_all(prepared: Prepared, gate: Gate, ctx: JobContext) -> None:
    slots = asyncio.Semaphore(prepared.run.concurrency)
    interruption: list[Exception] = []
    models = {plan.model.pk: plan.model for plan in prepared.plans}
    remarks = prepared.remarks
    announce = RunAnnounce(prepared.run, ctx)
    purse = await in_thread(purse_of, prepared.run)

    async with (
        Recorder(ctx.fence) as recorder,
        _clients(prepared) as clients,
        _services_for(prepared) as services,
    ):
        support = {
            pk: FunctionSupport(client, models[pk].supports_tools) for pk, client in clients.items()
        }

        drain = Drain(ctx)

        async def one(plan: RolloutPlan) -> None:
            async with slots:
                if drain.is_on:
                    return
                pk = plan.model.pk
                conversation = conversation_for(prepared, clients[pk], support[pk], plan)
                if purse is not None:
                    conversation = CappedConversation(
                        conversation,
                        purse,
                        max_tokens=prepared.samplings[plan.rollout.harness_id].max_tokens,
                        price_in=plan.model.price_in_usd_per_mtok,
                        price_out=plan.model.price_out_usd_per_mtok,
                    )
                rollout = AgentRollout(plan, conversation, recorder, remarks, services)
                drain.note(rollout)
                await _attempt(rollout, plan, gate, recorder, announce, drain)
                if remarks.is_fresh:
                    await recorder.record(Write(remarks.store))

        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_watch(prepared.run, gate, recorder, drain))
                async with asyncio.TaskGroup() as rollouts:
                    for plan in prepared.plans:
                        rollouts.create_task(one(plan))
                watch.cancel()
        except* (LeaseLost, Cancelled, Stopped) as interrupted:
            interruption.extend(_leaves(interrupted))
    for pk, found in support.items():
        if found.learned is not None:
            await asyncio.to_thread(
                remember_tool_support, model=models[pk], takes_tools=found.learned
            )
    if interruption:
        raise next((e for e in interruption if isinstance(e, LeaseLost)), interruption[0])


@asynccontextmanager
async def _clients(prepared: Prepared) -> AsyncIterator[dict[int, ModelClient]]:
    """One for each model, with connections of its own."""
    async with AsyncExitStack() as stack:
        yield {
            pk: await stack.enter_async_context(ModelClient(endpoint, retry_for_s=MODEL_PATIENCE_S))
            for pk, endpoint in prepared.endpoints.items()
        }


@asynccontextmanager
async def _services_for(prepared: Prepared) -> AsyncIterator[Services | None]:
    """Judges and code, where the rubric asks for them."""
    if not any(needs_services(plan.rubric) for plan in prepared.plans):
        yield None
        return
    purse = await in_thread(purse_of_run, prepared.run.pk)
    async with grading_services(prepared.run.project_id, purse=purse) as services:
        yield services


def _leaves(group: BaseExceptionGroup[Any]) -> list[Exception]:
    leaves: list[Exception] = []
    for exc in group.exceptions:
        leaves.extend(_leaves(exc) if isinstance(exc, BaseExceptionGroup) else [exc])
    return leaves


class Drain:
    """The end of a worker that stops: rollouts that wait are left, those that have begun go on."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self._tasks: dict[asyncio.Task[Any], AgentRollout] = {}
        self._ends_at: float | None = None

    @property
    def is_on(self) -> bool:
        return self._ctx.stop.is_set()

    def note(self, rollout: AgentRollout) -> None:
        """Called in the task that drives the rollout."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = rollout
        task.add_done_callback(self._tasks.pop)

    def check(self) -> None:
        """Raises LeaseLost, Cancelled, and Stopped once the time is over."""
        self._ctx.check(is_draining=True)
        if not self.is_on:
            return
        now = asyncio.get_running_loop().time()
        if self._ends_at is None:
            self._ends_at = now + settings.DRAIN_S
            for task, rollout in self._tasks.items():
                if not rollout.has_begun:
                    task.cancel()
        if now >= self._ends_at:
            self._ctx.check()


async def _watch(run: Run, gate: Gate, recorder: Recorder, drain: Drain) -> None:
    """Ends the loop when it should end, and tells how full the servers are."""
    loop = asyncio.get_running_loop()
    told, tell_at = None, loop.time()
    while True:
        drain.check()
        await asyncio.sleep(WATCH_S)
        usage = gate.usage()
        if usage != told and loop.time() >= tell_at:
            told, tell_at = usage, loop.time() + TELL_CAPACITY_S
            await recorder.append(run.stream_id, [NewEvent("capacity", capacity_payload(usage))])


def conversation_for(
    prepared: Prepared, client: ModelClient, support: FunctionSupport, plan: RolloutPlan
) -> Conversation:
    sampling = prepared.samplings[plan.rollout.harness_id]
    if plan.model.gives_tokens:
        return TokenConversation(LocalModel(client), sampling)
    return ChatConversation(ChatModel(client), sampling, support)


async def _attempt(
    rollout: AgentRollout,
    plan: RolloutPlan,
    gate: Gate,
    recorder: Recorder,
    announce: Announce,
    drain: Drain,
) -> None:
    """The boundary around one rollout: whatever it does, its neighbours go on."""

    async def record_failure(cause: str, message: str) -> None:
        await _record_failure(plan.rollout, recorder, announce, cause, message)

    try:
        with bound_contextvars(rollout_id=plan.rollout.pk), _span_of(plan):
            await _admit(rollout, plan, gate, announce, drain)
    except (LeaseLost, Cancelled, Stopped):
        raise
    except SlotRetractedError:
        await record_failure(
            Cause.NO_CAPACITY,
            f"The environment server took the slot back {MAX_ADMISSIONS} times. No score.",
        )
    except ServerStartError as exc:
        await record_failure(Cause.ENV_UNREACHABLE, f"{exc} No score.")
    except TimeoutError:
        limit = f"{plan.settings.episode_timeout_s:g} s"
        await record_failure(
            "rollout_timeout",
            f"The rollout did not end within {limit} (episode_timeout_s). No score.",
        )
    except Exception as exc:  # boundary: recorded on the rollout
        log.exception("rollout failed", rollout_id=plan.rollout.pk)
        await record_failure("internal", f"{type(exc).__name__}: {exc}")


def _span_of(plan: RolloutPlan) -> AbstractContextManager[tracing.Span]:
    """With the wait for a slot."""
    told: tracing.Attributes = {
        "rollout.id": plan.rollout.pk,
        "run.id": plan.rollout.run_id,
        "task.key": plan.rollout.task.key,
        "rollout.replicate": plan.rollout.replicate,
    }
    return tracing.span("rollout", told)


async def _admit(
    rollout: AgentRollout, plan: RolloutPlan, gate: Gate, announce: Announce, drain: Drain
) -> None:
    """Waits for a slot and runs; again if the server did not have it after all."""
    number: int | None = None
    for last in range(MAX_ADMISSIONS):
        async with admitted(gate, rollout.queued, number) as lease:
            if drain.is_on and not rollout.has_begun:
                return
            try:
                # The wait for a slot does not count: it is the neighbours' time.
                async with asyncio.timeout(plan.settings.episode_timeout_s):
                    await rollout.run(lease, announce=announce)
                return
            except SlotRetractedError as exc:
                if last + 1 == MAX_ADMISSIONS:
                    raise
                number = exc.number


async def _record_failure(
    rollout: Rollout, recorder: Recorder, announce: Announce, cause: str, message: str
) -> None:
    def apply() -> dict[int, Sequence[NewEvent]]:
        rollout.refresh_from_db(fields=["state"])
        if rollout.state not in OPEN_ROLLOUT_STATES:
            return {}
        rollout.state, rollout.score = RolloutState.ERRORED, None
        rollout.cause, rollout.message = cause, message
        rollout.ended_at = timezone.now()
        rollout.save(update_fields=["state", "score", "cause", "message", "ended_at"])
        return {
            rollout.stream_id: [NewEvent("rollout.ended", queries.ended_payload(rollout))],
            **announce.ended(rollout),
        }

    await recorder.record(Write(apply, announce.tally))


def announce_to_run(rollout: Rollout) -> dict[int, Sequence[NewEvent]]:
    """Needs the transaction in which the rollout ended."""
    run = rollout.run
    rollout_ended.send(sender=Run, run=run, rollout=rollout)
    return {run.stream_id: [NewEvent("rollout", queries.rollout_row(rollout))]}


class RunAnnounce:
    """What a run tells on its own stream, and to whoever listens."""

    def __init__(self, run: Run, ctx: JobContext) -> None:
        self._run, self._ctx = run, ctx

    def ended(self, rollout: Rollout) -> dict[int, Sequence[NewEvent]]:
        return announce_to_run(rollout)

    def tally(self) -> dict[int, Sequence[NewEvent]]:
        # An ended rollout is progress: a run that outlives many kills is not given up.
        self._ctx.progress()
        tally = queries.tally(self._run.pk)
        run_progressed.send(sender=Run, run=self._run, done=tally.done, planned=tally.planned)
        return {self._run.stream_id: [NewEvent("tally", asdict(tally))]}
