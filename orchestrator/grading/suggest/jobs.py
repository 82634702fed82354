"""The job that asks a model for criteria: material, question, reply, one correction at most."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from orchestrator.agents.client import ModelClient
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.errors import ModelError
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import Task
from orchestrator.grading.models import RegradeState, RubricSuggestion
from orchestrator.grading.suggest import services
from orchestrator.grading.suggest.question import FORM, Material, messages, schema
from orchestrator.grading.suggest.reply import Proposed, ReplyUnusable, read_proposals
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.projects.secrets import SecretUnreadable
from orchestrator.runs.models import Rollout, RolloutState
from orchestrator.runs.transcripts import transcripts_of, with_trace

N_TASKS = 3
MAX_TOKENS = 3000
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.2
"""How often a request that waits looks whether the job was cancelled."""


def record_unfinished(job: Job) -> None:
    is_cancelled = job.state == JobState.CANCELLED
    services.end_unfinished(
        suggestion_id=job.spec["suggestion_id"],
        state=RegradeState.CANCELLED if is_cancelled else RegradeState.FAILED,
        error="" if is_cancelled else job.error,
    )


@job_handler(services.JOB_KIND, on_unfinished=record_unfinished)
def suggest(ctx: JobContext) -> None:
    asked = (
        RubricSuggestion.objects.select_related(
            "rubric__draft", "endpoint", "environment_version__environment"
        )
        .filter(pk=ctx.spec["suggestion_id"], state__in=services.OPEN_STATES)
        .first()
    )
    if asked is None:
        return
    if asked.endpoint is None or asked.environment_version is None:
        services.fail(
            suggestion_id=asked.pk,
            error="The model or the environment was removed meanwhile.",
            fence=ctx.fence,
        )
        return
    services.tell(suggestion_id=asked.pk, progress="reading traces", fence=ctx.fence)
    existing = _existing(asked)
    material = _material(asked, [str(c.get("name") or c.get("id")) for c in existing])
    ctx.check()
    told = f"asking {asked.endpoint.name}, {len(material.traces)} traces"
    services.tell(suggestion_id=asked.pk, progress=told, fence=ctx.fence)
    conversation = _Conversation(ctx, asked.endpoint, messages(material, secrets.token_hex(6)))
    try:
        found = asyncio.run(conversation.hold([str(c.get("id")) for c in existing]))
    except (ModelError, SecretUnreadable, ReplyUnusable) as exc:
        services.fail(
            suggestion_id=asked.pk, error=str(exc), raw=conversation.said, fence=ctx.fence
        )
        return
    services.complete(
        suggestion_id=asked.pk,
        criteria=[
            {"criterion": dict(p.criterion), "why": p.why, "settled": ""} for p in found.proposals
        ],
        left_out=[{"name": name, "reason": reason} for name, reason in found.left_out],
        raw=conversation.said,
        fence=ctx.fence,
    )


def _existing(asked: RubricSuggestion) -> list[dict[str, Any]]:
    draft = getattr(asked.rubric, "draft", None)
    listed = draft.spec.get("criteria") if draft else None
    return [item for item in listed or () if isinstance(item, dict)]


def _material(asked: RubricSuggestion, existing: list[str]) -> Material:
    """Of train tasks alone: what certifies or claims a gain shapes no rubric by its traces."""
    version = asked.environment_version
    assert version is not None, "checked by the caller"
    tasks = Task.objects.filter(version=version, split="train").order_by("key")
    rollouts = list(
        with_trace(
            Rollout.objects.filter(
                run__environment_version__environment=version.environment,
                run__project_id=asked.rubric.project_id,
                task__split="train",
                state=RolloutState.SCORED,
            )
        )
        .select_related("task", "run")
        .order_by("-id")[: asked.n_traces]
    )
    transcripts = transcripts_of(rollouts)
    return Material(
        environment=f"{version.environment.name} ({version.environment.get_kind_display()})",
        description=version.description or version.environment.description,
        tasks=list(tasks.values_list("prompt", flat=True)[:N_TASKS]),
        traces=[(transcripts[rollout.pk], rollout.score) for rollout in rollouts],
        existing=existing,
    )


class _Conversation:
    """With one endpoint; a reply that cannot be read is told, once."""

    def __init__(self, ctx: JobContext, row: ModelEndpoint, opening: list[dict[str, str]]) -> None:
        self._ctx = ctx
        self._row = row
        self._messages = opening
        self.said = ""
        """The last reply."""

    async def hold(self, taken: list[str]) -> Proposed:
        """Raises ModelError, SecretUnreadable or ReplyUnusable."""
        async with ModelClient(endpoint_of(self._row), retry_for_s=PATIENCE_S) as client:
            await self._watched(client)
            try:
                return read_proposals(self.said, taken)
            except ReplyUnusable as why:
                self._messages = [
                    *self._messages,
                    {"role": "assistant", "content": self.said},
                    {"role": "user", "content": f"{why} {FORM}"},
                ]
            await self._watched(client)
            return read_proposals(self.said, taken)

    async def _watched(self, client: ModelClient) -> None:
        request = asyncio.ensure_future(self._reply(client))
        try:
            while not (await asyncio.wait({request}, timeout=LOOK_EVERY_S))[0]:
                self._ctx.check()
        finally:
            request.cancel()
        self.said = await request

    async def _reply(self, client: ModelClient) -> str:
        if self._row.supports_schema is not False:
            try:
                return await self._post(client, with_schema=True)
            except ModelError as exc:
                if exc.cause != "model_refused":
                    raise
        return await self._post(client, with_schema=False)

    async def _post(self, client: ModelClient, *, with_schema: bool) -> str:
        body: dict[str, Any] = {
            "model": client.endpoint.model,
            "messages": self._messages,
            "temperature": 0.0,
            "max_tokens": MAX_TOKENS,
        }
        if with_schema:
            # Not strict: the parameters differ from kind to kind.
            form = {"name": "criteria", "strict": False, "schema": schema()}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        answer = await client.post("/v1/chat/completions", body)
        try:
            text = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError) as exc:
            raise client.lacks(exc) from exc
        return text if isinstance(text, str) else ""
