"""The caps of a project's judges: dollars and tokens in a day (UTC), over the ledger.

A request is set aside at what it may take at most and settled at what it took. Near a cap a request
waits while others that are on their way may leave room (`PurseHeld`); beyond it the verdict is
errored with the cap and what is left, never a zero. What an endpoint charges beyond the upper bound
is counted all the same: it is spent.
"""

from __future__ import annotations

import datetime
import json
import math
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import connection, transaction
from django.db.models import F, Sum
from django.utils import timezone

from optimizer import ledger
from optimizer.ledger import Account, Outcome
from optimizer.models import Budget
from orchestrator.agents.models import ModelEndpoint
from orchestrator.judging.judges import Purse, PurseHeld
from orchestrator.judging.ledger_store import DatabaseStore
from orchestrator.judging.models import JudgeCall, JudgeLimits
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from rubrics.errors import CriterionFailed
from rubrics.judge.question import Question

ROLE = "judge"
TOKENS, MICRO_USD = "tokens", "micro_usd"
LEASE_S = 900.0
"""Longer than a request with all its waits; frees what a killed process had set aside."""
MARGIN_BYTES = 2_000
"""Of the words around a message, and of a correction that quotes a bad reply."""


@dataclass(frozen=True)
class Spending:
    """Of one project today; a cap of None is none."""

    usd: float
    tokens: int
    usd_cap: float | None
    tokens_cap: int | None


@dataclass(frozen=True)
class Purses:
    """Several that must all allow a request."""

    purses: Sequence[Purse]

    def reserve(self, key: str, question: Question, endpoint: ModelEndpoint) -> None:
        done: list[Purse] = []
        try:
            for purse in self.purses:
                purse.reserve(key, question, endpoint)
                done.append(purse)
        except CriterionFailed:
            for purse in done:
                purse.settle(key, 0.0, 0)
            raise

    def settle(self, key: str, cost_usd: float, tokens: int) -> None:
        for purse in self.purses:
            purse.settle(key, cost_usd, tokens)


@dataclass
class DailyPurse:
    """Of one project, for one process; see `orchestrator.judging.judges.Purse`.

    The caps are read for every request: one that is set or changed holds for runs under way.
    """

    project_id: int
    _open: dict[str, list[_Held]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, key: str, question: Question, endpoint: ModelEndpoint) -> None:
        most = most_of(question, endpoint)
        held: list[_Held] = []
        try:
            for unit, cap in caps_of(self.project_id).items():
                if most[unit]:
                    account = _account(self.project_id, unit)
                    # Of this try: what was refunded is not reserved again under its key.
                    own = f"{account.scope}/{unit}/{key}/{secrets.token_hex(4)}"
                    held.append(_Held(own, account, most[unit]))
                    _set_aside(self.project_id, held[-1], cap)
        except CriterionFailed:
            for one in held[:-1]:
                ledger.refund(DatabaseStore(), key=one.key)
            raise
        finally:
            connection.close()  # of a thread that may end
        with self._lock:
            self._open[key] = held

    def settle(self, key: str, cost_usd: float, tokens: int) -> None:
        spent = {TOKENS: tokens, MICRO_USD: math.ceil(cost_usd * 1e6)}
        with self._lock:
            held = self._open.pop(key, [])
        try:
            for one in held:
                _settle(one, spent[one.account.unit])
        finally:
            connection.close()


@dataclass(frozen=True)
class _Held:
    key: str
    account: Account
    amount: int


def most_of(question: Question, endpoint: ModelEndpoint) -> dict[str, int]:
    """Upper bounds of one request: a token of text is at least a byte."""
    sent = "".join(message["content"] for message in question.messages)
    tokens_in = len(sent.encode(errors="replace")) + len(json.dumps(question.schema)) + MARGIN_BYTES
    tokens_out = question.sampling.max_tokens
    micro_usd = (
        tokens_in * endpoint.price_in_usd_per_mtok + tokens_out * endpoint.price_out_usd_per_mtok
    )
    return {TOKENS: tokens_in + tokens_out, MICRO_USD: math.ceil(micro_usd)}


def set_limits(
    *, actor: User, project: Project, usd_per_day: float | None, tokens_per_day: int | None
) -> JudgeLimits:
    """Only for admins. A cap that is lowered holds for what is asked from now on."""
    require(actor, project.pk, Role.ADMIN)
    with transaction.atomic():
        limits, _ = JudgeLimits.objects.update_or_create(
            project=project,
            defaults={"usd_per_day": usd_per_day, "tokens_per_day": tokens_per_day},
        )
    return limits


def spending_today(project_id: int) -> Spending:
    limits = JudgeLimits.objects.filter(project_id=project_id).first()
    kept = Budget.objects.filter(scope=_account(project_id, TOKENS).scope, role=ROLE)
    spent = {**_called_today(project_id), **dict(kept.values_list("unit", "used"))}
    return Spending(
        usd=spent[MICRO_USD] / 1e6,
        tokens=int(spent[TOKENS]),
        usd_cap=limits.usd_per_day if limits else None,
        tokens_cap=limits.tokens_per_day if limits else None,
    )


def _called_today(project_id: int) -> dict[str, float]:
    """What was asked before a cap was set; the ledger counts from then on."""
    start = _now().replace(hour=0, minute=0, second=0, microsecond=0)
    spent = JudgeCall.objects.filter(project_id=project_id, created_at__gte=start).aggregate(
        usd=Sum("cost_usd"), given=Sum("tokens_in"), taken=Sum("tokens_out")
    )
    return {
        MICRO_USD: math.ceil((spent["usd"] or 0.0) * 1e6),
        TOKENS: (spent["given"] or 0) + (spent["taken"] or 0),
    }


def _now() -> datetime.datetime:
    return timezone.now().astimezone(datetime.UTC)


def caps_of(project_id: int) -> dict[str, int]:
    """By unit; a unit without a cap is not in it."""
    limits = JudgeLimits.objects.filter(project_id=project_id).first()
    found = {}
    if limits is not None and limits.tokens_per_day is not None:
        found[TOKENS] = limits.tokens_per_day
    if limits is not None and limits.usd_per_day is not None:
        found[MICRO_USD] = int(limits.usd_per_day * 1e6)
    return found


def _account(project_id: int, unit: str) -> Account:
    return Account(f"judges:{project_id}:{_now().date().isoformat()}", ROLE, unit)


def _set_aside(project_id: int, held: _Held, cap: int) -> None:
    account, store = held.account, DatabaseStore()
    own = Budget.objects.filter(scope=account.scope, role=account.role, unit=account.unit)
    budget = own.first()
    if budget is None:
        used = _called_today(project_id)[account.unit]
        budget, _ = own.get_or_create(
            scope=account.scope,
            role=account.role,
            unit=account.unit,
            defaults={"cap": cap, "used": used},
        )
    Budget.objects.filter(pk=budget.pk).exclude(cap=cap).update(cap=cap)
    now = time.time()
    for last in (False, True):
        outcome = ledger.reserve(
            store, key=held.key, accounts=[account], amount=held.amount, now=now, lease_s=LEASE_S
        )
        if outcome is not Outcome.REFUSED:
            return
        if not last:
            ledger.expire(store, now=now)
    budget.refresh_from_db()
    if budget.reserved and budget.used + held.amount <= cap:
        raise PurseHeld(_refusal(account.unit, cap, budget, held.amount))
    raise CriterionFailed(_refusal(account.unit, cap, budget, held.amount))


def _settle(held: _Held, spent: int) -> None:
    store = DatabaseStore()
    outcome = ledger.settle(store, key=held.key, amount=min(spent, held.amount))
    beyond = spent - held.amount if outcome is Outcome.DONE else 0
    if outcome is Outcome.LATE:
        beyond = spent  # it had expired, and was answered all the same
    if beyond > 0:
        account = held.account
        Budget.objects.filter(
            scope=account.scope, role=account.role, unit=account.unit
        ).update(used=F("used") + beyond)  # fmt: skip


def _refusal(unit: str, cap: int, budget: Budget, amount: int) -> str:
    left = max(0, int(cap - budget.used - budget.reserved))
    if unit == TOKENS:
        said, rest, need = f"{cap:,} tokens", f"{left:,}", f"{amount:,}"
    else:
        said, rest, need = f"${cap / 1e6:,.2f}", f"${left / 1e6:,.4f}", f"${amount / 1e6:,.4f}"
    return (
        f"The judges of this project may take {said} a day; {rest} are left, and this request may "
        f"take {need}. An admin can raise the cap under Settings, Models; days end at 00:00 UTC."
    )
