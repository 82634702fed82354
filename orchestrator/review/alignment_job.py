"""The job that finds a better question: a few proposals, then the test on the other half.

Started again after a crash it goes on: proposals are stored as they come, and a judge that was
asked already answers from the database.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from orchestrator.agents.client import ModelClient
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.errors import ModelError
from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.models import Alignment, RegradeState
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext
from orchestrator.judging.services import grading_services
from orchestrator.projects.secrets import SecretUnreadable, derived_key
from orchestrator.review import alignment as services
from orchestrator.review.calibration import Paired
from orchestrator.runs.models import Rollout
from orchestrator.runs.transcripts import transcripts_of
from rubrics.align import (
    SCHEMA,
    Case,
    JudgedTwice,
    messages,
    outcome,
    read_proposal,
    why_rejected,
    with_question,
)
from rubrics.codec import from_json
from rubrics.errors import CriterionFailed
from rubrics.grade import grade_async
from rubrics.judge.question import Question
from rubrics.judge.view import DEFAULT_PARTS, view_of
from rubrics.types import Criterion, RubricSpec, Services, State, Transcript, Verdict

PROPOSALS = 3
"""The first and two corrections."""
AT_ONCE = 16
MAX_TOKENS = 1200
PROPOSER_PATIENCE_S = 120.0


class NoProposal(RuntimeError):
    """The model gave nothing that could be tested; the message is shown."""


@dataclass
class CappedPurse:
    """What the judge may spend here. See `orchestrator.judging.judges.Purse`."""

    left_usd: float
    cost_usd: float = 0.0
    tokens: int = 0

    def reserve(self, key: str, question: Question, endpoint: ModelEndpoint) -> None:
        if self.cost_usd >= self.left_usd:
            raise CriterionFailed(f"the cap on cost is spent ({self.cost_usd:.2f} USD)")

    def settle(self, key: str, cost_usd: float, tokens: int) -> None:
        self.cost_usd += cost_usd
        self.tokens += tokens


class OpenServices(Protocol):
    """What makes the services for grading; `grading_services` is one."""

    def __call__(
        self, project_id: int, *, purse: CappedPurse
    ) -> AbstractAsyncContextManager[Services]: ...


Transcripts = Callable[[Sequence[Rollout]], Mapping[int, Transcript]]


def record_unfinished(job: Job) -> None:
    state = RegradeState.CANCELLED if job.state == JobState.CANCELLED else RegradeState.FAILED
    services.end_unfinished(job.spec["alignment_id"], state=state, error=job.error)


def align(
    ctx: JobContext,
    *,
    open_services: OpenServices = grading_services,
    transcripts: Transcripts = transcripts_of,
) -> None:
    """Raises LeaseLost, Cancelled, Stopped."""
    alignment = Alignment.objects.select_related("version__rubric", "endpoint").get(
        pk=ctx.spec["alignment_id"]
    )
    version = alignment.version
    found = services.first_of(version.rubric, version, alignment.criterion)
    if problem := services.why_not(found):
        services.finish(alignment, result={}, error=problem, fence=ctx.fence)
        return
    assert found is not None  # `why_not` has looked
    learn, test = services.halves(found)
    services.mark_running(alignment, n_total=len(test), fence=ctx.fence)
    spec = from_json(version.spec)
    criterion = next(c for c in spec.criteria if c.id == alignment.criterion)
    try:
        question = _proposal(alignment, spec, criterion, _cases(criterion, learn, transcripts), ctx)
        tested = _tested(
            alignment, with_question(criterion, question), test, ctx, open_services, transcripts
        )
    except (NoProposal, ModelError, SecretUnreadable) as exc:
        services.finish(alignment, result={}, error=str(exc), fence=ctx.fence)
        return
    services.finish(alignment, result=outcome(tested), fence=ctx.fence)


# --- proposing -----------------------------------------------------------------------------------


def _cases(criterion: Criterion, learn: Sequence[Paired], transcripts: Transcripts) -> list[Case]:
    read = transcripts(_rollouts(learn))
    parts = criterion.params.get("sees", DEFAULT_PARTS)
    return [
        Case(
            person=pair.person,
            judge=pair.judge,
            judge_reason=pair.given.reason,
            notes=[label.note for label in pair.labels],
            seen=view_of(read[pair.rollout], parts, criterion.scope),
            expected=read[pair.rollout].expected or "",
        )
        for pair in learn
        if pair.rollout in read
    ]


def _proposal(
    alignment: Alignment,
    spec: RubricSpec,
    criterion: Criterion,
    cases: Sequence[Case],
    ctx: JobContext,
) -> str:
    """The first that may be tested. Raises NoProposal, ModelError, SecretUnreadable."""
    while len(alignment.proposals) < PROPOSALS:
        ctx.check()
        if alignment.proposals and not alignment.proposals[-1]["rejected"]:
            return str(alignment.proposals[-1]["question"])
        rejected = [(p["question"] or p["raw"], p["rejected"]) for p in alignment.proposals]
        reply = _asked(alignment, messages(criterion, cases, _mark(alignment), rejected))
        try:
            question = read_proposal(reply.text)
            why = why_rejected(question, criterion, spec, cases)
        except ValueError as exc:
            question, why = "", str(exc)
        proposal = {"question": question, "rejected": why, "raw": reply.text[:8000]}
        services.store_proposal(alignment, proposal, fence=ctx.fence)
        services.add_spent(alignment, tokens=reply.tokens, cost_usd=reply.cost_usd, fence=ctx.fence)
    last = alignment.proposals[-1]
    if not last["rejected"]:
        return str(last["question"])
    raise NoProposal(
        f"{len(alignment.proposals)} proposals, none that could be tested. The last one: "
        f"{last['rejected']}."
    )


@dataclass(frozen=True)
class _Reply:
    text: str
    tokens: int
    cost_usd: float


def _asked(alignment: Alignment, said: Sequence[Mapping[str, str]]) -> _Reply:
    row = alignment.endpoint
    if row is None:
        raise NoProposal("The model that was chosen is gone. Start again with another one.")
    answer = asyncio.run(_posted(row, said))
    try:
        text = str(answer["choices"][0]["message"]["content"] or "")
    except (KeyError, IndexError, TypeError):
        text = ""
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens_in = int(counts.get("prompt_tokens") or 0)
    tokens_out = int(counts.get("completion_tokens") or 0)
    cost = tokens_in * row.price_in_usd_per_mtok + tokens_out * row.price_out_usd_per_mtok
    return _Reply(text, tokens_in + tokens_out, cost / 1e6)


async def _posted(row: ModelEndpoint, said: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Held to a schema where the endpoint can. Raises ModelError, SecretUnreadable."""
    endpoint = endpoint_of(row)
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [dict(message) for message in said],
        "temperature": 0.0,
        "max_tokens": MAX_TOKENS,
    }
    schema = {"name": "proposal", "strict": True, "schema": dict(SCHEMA)}
    held = {**body, "response_format": {"type": "json_schema", "json_schema": schema}}
    async with ModelClient(endpoint, retry_for_s=PROPOSER_PATIENCE_S) as client:
        if row.supports_schema is not False:
            try:
                return await client.post("/v1/chat/completions", held)
            except ModelError as exc:
                if exc.cause != "model_refused":
                    raise
        return await client.post("/v1/chat/completions", body)


def _mark(alignment: Alignment) -> str:
    secret = derived_key("frames of judged data")
    return hmac.new(secret, f"alignment {alignment.pk}".encode(), hashlib.sha256).hexdigest()[:12]


# --- testing -------------------------------------------------------------------------------------


def _tested(
    alignment: Alignment,
    criterion: Criterion,
    test: Sequence[Paired],
    ctx: JobContext,
    open_services: OpenServices,
    transcripts: Transcripts,
) -> list[JudgedTwice]:
    """The new question on the half that was kept apart; the old one's verdicts are stored."""
    project_id = alignment.version.rubric.project_id
    alignment.refresh_from_db(fields=["cost_usd"])
    purse = CappedPurse(alignment.max_cost_usd - alignment.cost_usd)
    found: list[JudgedTwice] = []
    for start in range(0, len(test), AT_ONCE):
        ctx.check()
        part = test[start : start + AT_ONCE]
        read = transcripts(_rollouts(part))
        before = purse.cost_usd, purse.tokens
        verdicts = asyncio.run(_graded(project_id, criterion, read, purse, open_services))
        found += [_compared(criterion, pair, verdicts.get(pair.rollout)) for pair in part]
        services.add_spent(
            alignment,
            cost_usd=purse.cost_usd - before[0],
            tokens=purse.tokens - before[1],
            n_done=len(part),
            fence=ctx.fence,
        )
        ctx.progress()
    return found


async def _graded(
    project_id: int,
    criterion: Criterion,
    read: Mapping[int, Transcript],
    purse: CappedPurse,
    open_services: OpenServices,
) -> dict[int, Verdict]:
    # Outside of its rubric no group or gate stands before it.
    alone = RubricSpec(criteria=(replace(criterion, group="", gate=False),))
    async with open_services(project_id, purse=purse) as given, asyncio.TaskGroup() as group:
        tasks = {
            rollout: group.create_task(grade_async(alone, transcript, services=given))
            for rollout, transcript in read.items()
        }
    return {rollout: task.result()[0] for rollout, task in tasks.items()}


def _compared(criterion: Criterion, pair: Paired, verdict: Verdict | None) -> JudgedTwice:
    after: bool | None = None
    if verdict is not None and verdict.state is State.SCORED and verdict.value is not None:
        low = verdict.value < criterion.threshold
        after = low if criterion.negative else not low
    return JudgedTwice(pair.task, pair.person, pair.judge, after)


def _rollouts(pairs: Sequence[Paired]) -> list[Rollout]:
    ids = [pair.rollout for pair in pairs]
    return list(Rollout.objects.filter(pk__in=ids).select_related("task").order_by("pk"))
