"""The job of a proposal: write the question, ask, read, lint, end it.

Every reply is stored in the transaction that books it, before anything is made of it. So a job that
is killed and started again goes on with what was answered, and nothing is asked or paid twice but a
request that was on its way. Whatever the endpoint does ends in the row: as edits, or as a failure
in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import F

from optimizer.models import Proposal
from optimizer.reflection import Mode, Sifted, read_answer
from optimizer.reflection.answer import storable
from optimizer.reflection.question import corrected
from optimizer.seeds import derive
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.errors import ModelError
from orchestrator.agents.models import ModelEndpoint
from orchestrator.jobs.fencing import hold_fence
from orchestrator.jobs.registry import JobContext
from orchestrator.judging.accounts import BudgetExceeded
from orchestrator.projects.secrets import SecretUnreadable
from orchestrator.proposing import services
from orchestrator.proposing.calls import Clock, Line, Reply
from orchestrator.proposing.material import material_of, mode_of, prepare, shorten, sifted
from orchestrator.proposing.names import HANDED_IN
from orchestrator.proposing.purse import Purse, refund_all
from orchestrator.proposing.terms import Terms

T = TypeVar("T")
MAX_REPLIES = 3
"""The first and two that correct it."""
LOOK_EVERY_S = 0.2
"""How often a request that waits looks whether its job was cancelled."""
KEPT_CHARS = 100_000
"""Of one raw reply."""


class NoAnswer(RuntimeError):
    """A proposal ends without edits; the message is shown."""


@dataclass
class Asking:
    """One proposal, one endpoint, one attempt of the job."""

    proposal: Proposal
    row: ModelEndpoint
    terms: Terms
    ctx: JobContext
    clock: Clock

    @property
    def purse(self) -> Purse:
        return Purse(self.proposal, self.row)

    def line(self) -> Line:
        """Raises SecretUnreadable."""
        return Line(
            endpoint_of(self.row), self.terms.patience_s, self.clock, self.row.supports_schema
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of asynchronous work, which ends when the job does.

        Raises LeaseLost, Cancelled, Stopped beside what the work raises.
        """
        return asyncio.run(_watched(work, self.ctx.check))

    def set_aside(
        self,
        purse: Purse,
        key: str,
        messages: Sequence[Mapping[str, Any]],
        extra: Mapping[str, Any],
        max_tokens: int,
    ) -> None:
        """Near the cap it waits while others that are on their way may leave room.

        Raises BudgetExceeded.
        """
        until = self.clock.now() + self.terms.patience_s
        while True:
            try:
                purse.reserve(key, messages, extra, max_tokens)
                return
            except BudgetExceeded:
                if not purse.may_wait() or self.clock.now() > until:
                    raise
            self.run(_sleep(self.clock, 1.0))

    def keep(self, purse: Purse, key: str, reply: Reply | None, answer: dict[str, Any]) -> None:
        """Books a reply and stores it, in one transaction. Raises LeaseLost."""
        cost_usd = purse.cost_usd(reply) if reply else 0.0
        answer |= {
            "tokens_in": reply.tokens_in if reply else 0,
            "tokens_out": reply.tokens_out if reply else 0,
            "cost_usd": cost_usd,
            "seconds": round(reply.seconds, 3) if reply else 0.0,
        }
        self.proposal.answers = [*self.proposal.answers, answer]
        with transaction.atomic():
            hold_fence(self.ctx.fence)
            purse.settle(key, reply)
            Proposal.objects.filter(pk=self.proposal.pk).update(
                answers=self.proposal.answers,
                tokens=F("tokens") + (reply.tokens if reply else 0),
                cost_usd=F("cost_usd") + cost_usd,
                seconds=F("seconds") + (reply.seconds if reply else 0.0),
            )
        self.ctx.progress()


async def _watched(work: Coroutine[Any, Any, T], check: Callable[[], None]) -> T:
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY_S))[0]:
            check()
    finally:
        task.cancel()
    return await task


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


# --- the job -------------------------------------------------------------------------------------


def answer_proposal(ctx: JobContext, *, clock: Clock | None = None) -> None:
    """Raises LeaseLost, Cancelled, Stopped."""
    proposal = Proposal.objects.select_related(
        "search__seed_harness", "search__rubric_version", "search__model"
    ).get(pk=ctx.spec["proposal_id"])
    if proposal.state != Proposal.State.WAITING:
        return
    prepare(proposal, fence=ctx.fence)
    if proposal.proposer == HANDED_IN:
        return  # whoever answers, does so by `orchestrator.proposing.handing`
    terms = material_of(proposal).terms
    try:
        asking = Asking(proposal, _endpoint(proposal, terms), terms, ctx, clock or Clock())
        if mode_of(proposal) is Mode.TRIGGERS:
            from orchestrator.proposing.tuning import tune

            reason, found = tune(asking)
        else:
            reason, found = _asked(asking)
    except (NoAnswer, ModelError, BudgetExceeded, SecretUnreadable) as why:
        _end(proposal, ctx, state=Proposal.State.FAILED, reason=str(why))
        return
    _end(proposal, ctx, state=Proposal.State.ANSWERED, reason=reason, found=found)


def _end(
    proposal: Proposal, ctx: JobContext, *, state: str, reason: str, found: Sifted | None = None
) -> None:
    with transaction.atomic():
        hold_fence(ctx.fence)
        refund_all(proposal)
        services.end(
            proposal,
            state=state,
            reason=reason,
            edits=[edit.to_json() for edit in found.kept] if found else [],
            refused=[item.to_json() for item in found.refused] if found else [],
        )


def _endpoint(proposal: Proposal, terms: Terms) -> ModelEndpoint:
    search = proposal.search
    if terms.model is None:
        if search.model is None:
            raise NoAnswer("The search names no model to ask. Choose one for the proposer.")
        return search.model
    row = ModelEndpoint.objects.filter(pk=terms.model, project_id=search.project_id).first()
    if row is None:
        raise NoAnswer("The model that was to be asked is gone. Choose another one.")
    return row


def _asked(asking: Asking) -> tuple[str, Sifted]:
    """The cause that was named, and the edits. Asks again where an answer is of no use."""
    proposal, mode = asking.proposal, mode_of(asking.proposal)
    if not proposal.request["components"]:
        return "Nothing of this harness may be changed by this proposer.", Sifted(())
    while True:
        last = proposal.answers[-1] if proposal.answers else None
        if last is not None:
            read = read_answer(last["text"], mode)
            found = sifted(proposal, read) if read.is_read else None
            if found is not None and (found.kept or not found.refused):
                return read.cause or "It named no cause.", found
            if len(proposal.answers) >= MAX_REPLIES:
                if found is not None:
                    return read.cause or "It named no cause.", found
                raise NoAnswer(
                    f"No usable answer in {len(proposal.answers)} replies; the last one: "
                    f"{last['problem']}."
                )
            problem = last["problem"]
            if found is not None:
                problem = "none of it may be tried: " + " / ".join(
                    item.sentence for item in found.refused[:6]
                )
            text = corrected(proposal.prompt, last["text"], problem)
        else:
            text = proposal.prompt
        try:
            _ask_once(asking, text)
        except ModelError as why:
            if why.cause != "context_overflow" or not shorten(proposal, fence=asking.ctx.fence):
                raise


def _ask_once(asking: Asking, asked_text: str) -> None:
    """One request; its reply, or what came in its place, becomes an answer of the row.

    Raises ModelError for what asking again would not change, BudgetExceeded.
    """
    proposal, terms = asking.proposal, asking.terms
    number = len(proposal.answers)
    messages = [{"role": "user", "content": asked_text}]
    schema = proposal.request["schema"]
    key = str(number)
    asking.set_aside(asking.purse, key, messages, schema, terms.max_tokens)
    line = asking.line()
    seed = derive(proposal.search.seed, "reflection", proposal.round, number) % 2**31

    async def asked() -> Reply:
        async with line:
            return await line.complete(
                messages, max_tokens=terms.max_tokens, seed=seed, schema=schema
            )

    try:
        reply = asking.run(asked())
    except ModelError as why:
        if why.cause != "model_reply_invalid":
            raise
        told = {"text": "", "problem": storable(why.message), "model": asking.row.name}
        asking.keep(asking.purse, key, None, told)
        return
    text = storable(reply.text[:KEPT_CHARS])
    read = read_answer(text, mode_of(proposal))
    problem = "" if read.is_read else read.problems[0]
    if problem and reply.is_cut:
        problem = f"the reply was cut off at {terms.max_tokens:,} tokens"
    told = {"text": text, "problem": problem, "model": asking.row.name}
    asking.keep(asking.purse, key, reply, told)
    _remember_schema(asking.row, line)


def _remember_schema(row: ModelEndpoint, line: Line) -> None:
    if row.supports_schema is None and line.takes_schema is not None:
        row.supports_schema = line.takes_schema
        ModelEndpoint.objects.filter(pk=row.pk, supports_schema__isnull=True).update(
            supports_schema=line.takes_schema
        )
