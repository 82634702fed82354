"""What the judges of one run may spend, where somebody has given it a cap: see `accounts`.

A harness search caps its judges by the scope `search:<id>`. A request is set aside at what it may
take at most and settled at what it took; one that does not fit leaves its criterion errored, with
the cap's name, never a zero.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field

from django.db import connection

from optimizer.models import SearchRun
from orchestrator.agents.models import ModelEndpoint
from orchestrator.judging import accounts
from orchestrator.judging.accounts import MICRO_USD, TOKENS, BudgetExceeded
from orchestrator.judging.budget import LEASE_S, ROLE, most_of
from orchestrator.judging.judges import Purse, PurseHeld
from rubrics.errors import CriterionFailed
from rubrics.judge.question import Question

HINT = "Raise the judges' cap of the search."


@dataclass
class ScopePurse:
    """See `orchestrator.judging.judges.Purse`; for one process."""

    scope: str
    _open: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, key: str, question: Question, endpoint: ModelEndpoint) -> None:
        most = most_of(question, endpoint)
        # Of this try: what was refunded is not reserved again under its key.
        own = f"{key[:64]}/{secrets.token_hex(4)}"
        try:
            accounts.reserve(
                scopes=[self.scope],
                role=ROLE,
                key=own,
                amounts=most,
                what="a judge's answer",
                hint=HINT,
                lease_s=LEASE_S,
            )
        except BudgetExceeded as exc:
            if self._may_fit_later(most):
                raise PurseHeld(str(exc)) from exc
            raise CriterionFailed(str(exc)) from exc
        finally:
            connection.close()  # of a thread that may end
        with self._lock:
            self._open[key] = own

    def settle(self, key: str, cost_usd: float, tokens: int) -> None:
        with self._lock:
            own = self._open.pop(key, None)
        if own is None:
            return
        try:
            accounts.settle(
                scopes=[self.scope],
                role=ROLE,
                key=own,
                amounts={TOKENS: tokens, MICRO_USD: accounts.micro_usd(cost_usd)},
            )
        finally:
            connection.close()

    def _may_fit_later(self, most: dict[str, int]) -> bool:
        """Others are on their way, and without what they have set aside there would be room."""
        rows = [b for found in accounts.accounts_of([self.scope], ROLE).values() for b in found]
        return any(row.reserved for row in rows) and all(
            row.used + most.get(row.unit, 0) <= row.cap for row in rows
        )


def purse_of_run(run_id: int) -> Purse | None:
    """None where nobody has capped the judges of this run."""
    asked = SearchRun.objects.filter(run_id=run_id).values_list("search_id", flat=True).first()
    if asked is None:
        return None
    scope = f"search:{asked}"
    return ScopePurse(scope) if accounts.accounts_of([scope], ROLE) else None
