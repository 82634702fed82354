"""The rollout engine: all open rollouts of a run, many at a time, in one event loop.

A run's worker thread reads what is needed, then runs the loop. Rollouts that have no result yet are
attempted, those that a dead worker left half-way again; the others are facts. The loop is
interrupted by cancel, stop or a lost lease; what has no result then stays open. A run ends when no
rollout is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from django.conf import settings
from django.utils import timezone

from optimizer.models import HarnessVersion
from optimizer.store import load_harness
from orchestrator.agents.client import (
    RETRY_FOR_S,
    ChatModel,
    Endpoint,
    LocalModel,
    ModelClient,
)
from orchestrator.agents.conversation import ChatConversation, TokenConversation
from orchestrator.agents.functions import FunctionSupport
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.agents.services import remember_tool_support
from orchestrator.agents.types import Conversation, Sampling
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.servers.pool import ServerPool
from orchestrator.environments.serving import (
    data_folder,
    episode_settings,
    kind_of,
    server_spec,
)
from orchestrator.events.services import LeaseLost, NewEvent
from orchestrator.jobs.errors import Cancelled, Stopped
from orchestrator.jobs.registry import JobContext
from orchestrator.runs import queries
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, Run
from orchestrator.runs.recorder import Recorder, Write
from orchestrator.runs.rollout import AgentRollout, Announce, RolloutPlan
from orchestrator.runs.services import end_failed_run, finish_run, mark_running
from orchestrator.runs.signals import rollout_ended
from rubrics.codec import from_json

WATCH_S = 0.2
"""How soon a loop notices that it should end."""
MODEL_PATIENCE_S = RETRY_FOR_S
"""How long a rollout waits for a model that is away before it gives up."""
ROLLOUT_LIMIT_S = 900.0
"""For one rollout, waiting for the model included: nothing may hold a run for ever."""

log = structlog.get_logger(__name__)
servers = ServerPool(data_folder())


@dataclass(frozen=True)
class Prepared:
    """What the loop needs, so that it never touches the database itself."""

    run: Run
    endpoint: Endpoint
    is_token_exact: bool
    plans: Sequence[RolloutPlan]
    samplings: Mapping[int, Sampling]
    """By harness version."""


def execute_run(*, run: Run, ctx: JobContext) -> None:
    """Attempts every open rollout of the run and ends it.

    Raises:
        LeaseLost, Cancelled, Stopped: interrupted; open rollouts stay open.
    """
    if run.has_ended:
        return
    mark_running(run=run, fence=ctx.fence)
    with ExitStack() as stack:
        try:
            # A server of ours is held until the stack closes.
            spec = server_spec(run.environment_version)
            base_url = stack.enter_context(servers.server(spec)).base_url
        except (ServerStartError, ValueError) as exc:
            end_failed_run(run=run, error=str(exc), fence=ctx.fence)
            return
        prepared = prepare(run, base_url)
        if prepared.plans:
            asyncio.run(_run_all(prepared, ctx))
    ctx.check()
    finish_run(run=run, fence=ctx.fence)


def prepare(run: Run, base_url: str) -> Prepared:
    """Reads the open rollouts with everything that they need."""
    rollouts = list(
        Rollout.objects.filter(run=run, state__in=OPEN_ROLLOUT_STATES)
        .select_related("task", "harness", "run__model", "run__environment_version__environment")
        .order_by("replicate", "id")
    )
    versions = {r.harness_id: r.harness for r in rollouts}
    harnesses = {pk: load_harness(version) for pk, version in versions.items()}
    rubric = from_json(run.rubric_version.spec)
    kind = kind_of(run.environment_version)
    plans = [
        RolloutPlan(
            rollout=rollout,
            harness=harnesses[rollout.harness_id],
            base_url=base_url,
            settings=episode_settings(
                run.environment_version,
                max_steps=harnesses[rollout.harness_id].limits.max_steps,
                limits=rollout.task.limits,
            ),
            kind=kind,
            rubric=rubric,
            price_in=run.model.price_in_usd_per_mtok,
            price_out=run.model.price_out_usd_per_mtok,
        )
        for rollout in rollouts
    ]
    return Prepared(
        run=run,
        endpoint=endpoint_of(run.model, run.adapter_name, run.adapter_path),
        is_token_exact=run.model.kind == EndpointKind.LOCAL,
        plans=plans,
        samplings={pk: _sampling(run, versions[pk], harnesses[pk]) for pk in harnesses},
    )


def endpoint_of(model: ModelEndpoint, adapter_name: str = "", adapter_path: str = "") -> Endpoint:
    local = f"http://127.0.0.1:{settings.MODEL_PORT}"
    return Endpoint(
        base_url=local
        if model.kind == EndpointKind.LOCAL and not model.base_url
        else model.base_url,
        model=adapter_name or model.model,
        adapter_path=adapter_path,
    )


def _sampling(run: Run, version: HarnessVersion, harness: Any) -> Sampling:
    values = {
        "temperature": harness.sampling.temperature,
        "max_tokens": harness.sampling.max_tokens,
        "stop": tuple(harness.sampling.stop),
        **run.sampling,
    }
    return Sampling(
        temperature=float(values["temperature"]),
        max_tokens=int(values["max_tokens"]),
        stop=tuple(values["stop"]),
    )


async def _run_all(prepared: Prepared, ctx: JobContext) -> None:
    slots = asyncio.Semaphore(prepared.run.concurrency)
    interruption: list[Exception] = []
    client = ModelClient(prepared.endpoint, retry_for_s=MODEL_PATIENCE_S)
    model = prepared.run.model
    support = FunctionSupport(client, model.supports_tools)

    def announce(rollout: Rollout) -> Mapping[int, Sequence[NewEvent]]:
        # Each ended rollout is progress: a run that outlives many kills is not given up.
        ctx.progress()
        return announce_to_run(rollout)

    async with Recorder(ctx.fence) as recorder, client:

        async def one(plan: RolloutPlan) -> None:
            async with slots:
                rollout = AgentRollout(
                    plan, _conversation(prepared, client, support, plan), recorder
                )
                await _attempt(rollout, plan, recorder, announce)

        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_watch(ctx))
                async with asyncio.TaskGroup() as rollouts:
                    for plan in prepared.plans:
                        rollouts.create_task(one(plan))
                watch.cancel()
        except* (LeaseLost, Cancelled, Stopped) as interrupted:
            interruption.extend(_leaves(interrupted))
    if support.learned is not None:
        await asyncio.to_thread(remember_tool_support, model=model, takes_tools=support.learned)
    if interruption:
        raise next((e for e in interruption if isinstance(e, LeaseLost)), interruption[0])


def _leaves(group: BaseExceptionGroup[Any]) -> list[Exception]:
    leaves: list[Exception] = []
    for exc in group.exceptions:
        leaves.extend(_leaves(exc) if isinstance(exc, BaseExceptionGroup) else [exc])
    return leaves


async def _watch(ctx: JobContext) -> None:
    while True:
        ctx.check()
        await asyncio.sleep(WATCH_S)


def _conversation(
    prepared: Prepared, client: ModelClient, support: FunctionSupport, plan: RolloutPlan
) -> Conversation:
    sampling = prepared.samplings[plan.rollout.harness_id]
    if prepared.is_token_exact:
        return TokenConversation(LocalModel(client), sampling)
    return ChatConversation(ChatModel(client), sampling, support)


async def _attempt(
    rollout: AgentRollout, plan: RolloutPlan, recorder: Recorder, announce: Announce
) -> None:
    """The boundary around one rollout: whatever it does, its neighbours go on."""
    try:
        async with asyncio.timeout(ROLLOUT_LIMIT_S):
            await rollout.run(announce=announce)
    except (LeaseLost, Cancelled, Stopped):
        raise
    except TimeoutError:
        await _record_failure(
            plan.rollout,
            recorder,
            announce,
            "rollout_timeout",
            f"The rollout did not end within {ROLLOUT_LIMIT_S:.0f} s.",
        )
    except Exception as exc:  # boundary: recorded on the rollout
        log.exception("rollout failed", rollout_id=plan.rollout.pk)
        reason = f"{type(exc).__name__}: {exc}"
        await _record_failure(plan.rollout, recorder, announce, "internal", reason)


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
            **announce(rollout),
        }

    await recorder.record(Write(apply))


def announce_to_run(rollout: Rollout) -> dict[int, Sequence[NewEvent]]:
    """Needs the transaction in which the rollout ended."""
    run = rollout.run
    tally = queries.tally(run.pk)
    rollout_ended.send(sender=Run, run=run, done=tally.done, planned=tally.planned)
    return {
        run.stream_id: [
            NewEvent("rollout", queries.rollout_row(rollout)),
            NewEvent("tally", asdict(tally)),
        ]
    }
