"""What the proposers of a search may spend, over its accounts in the ledger.

A request is set aside at what it may take at most, and settled at what it took. Without accounts of
the role nothing is capped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.models import Proposal
from orchestrator.agents.models import ModelEndpoint
from orchestrator.judging import accounts
from orchestrator.judging.accounts import MICRO_USD, TOKENS
from orchestrator.proposing.calls import Reply

ROLE = "proposer"
MARGIN_BYTES = 2_000
"""Of the words around messages."""


@dataclass(frozen=True)
class Purse:
    """Of one proposal, for one endpoint."""

    proposal: Proposal
    row: ModelEndpoint

    @property
    def _scopes(self) -> list[str]:
        return [f"search:{self.proposal.search_id}"]

    def reserve(
        self,
        key: str,
        messages: Sequence[Mapping[str, Any]],
        extra: Mapping[str, Any],
        max_tokens: int,
    ) -> None:
        """A repeat under the same key changes nothing. Raises BudgetExceeded."""
        # A token of text is at least a byte.
        sent = json.dumps([[*map(dict, messages)], extra], ensure_ascii=False)
        given = len(sent.encode(errors="replace")) + MARGIN_BYTES
        accounts.reserve(
            scopes=self._scopes,
            role=ROLE,
            key=self._key(key),
            amounts={
                TOKENS: given + max_tokens,
                MICRO_USD: accounts.micro_usd(self._usd(given, max_tokens)),
            },
            what=f"one answer of {self.proposal.proposer} in round {self.proposal.round}",
            hint="Raise the budget of the proposer in the search's settings.",
        )

    def settle(self, key: str, reply: Reply | None) -> None:
        """Needs a transaction. None: nothing was answered, nothing is counted."""
        tokens, usd = (reply.tokens, self.cost_usd(reply)) if reply else (0, 0.0)
        accounts.settle(
            scopes=self._scopes,
            role=ROLE,
            key=self._key(key),
            amounts={TOKENS: tokens, MICRO_USD: accounts.micro_usd(usd)},
        )

    def may_wait(self) -> bool:
        """Whether room may come: something is set aside that may settle below its bound."""
        budgets = accounts.accounts_of(self._scopes, ROLE)
        return any(budget.reserved > 0 for rows in budgets.values() for budget in rows)

    def cost_usd(self, reply: Reply) -> float:
        return self._usd(reply.tokens_in, reply.tokens_out)

    def _usd(self, tokens_in: int, tokens_out: int) -> float:
        given = tokens_in * self.row.price_in_usd_per_mtok
        return (given + tokens_out * self.row.price_out_usd_per_mtok) / 1e6

    def _key(self, key: str) -> str:
        return f"proposal-{self.proposal.pk}/{key}"


def refund_all(proposal: Proposal) -> None:
    """Frees what a job that has ended for good had set aside."""
    for unit, budgets in accounts.accounts_of([f"search:{proposal.search_id}"], ROLE).items():
        begin = f"search:{proposal.search_id}/{ROLE}/{unit}/proposal-{proposal.pk}/"
        keys = {
            key
            for budget in budgets
            for key in budget.entries.filter(key__startswith=begin).values_list("key", flat=True)
        }
        for key in keys:
            accounts.settle(
                scopes=[f"search:{proposal.search_id}"],
                role=ROLE,
                key=key.removeprefix(f"search:{proposal.search_id}/{ROLE}/{unit}/"),
                amounts={},
            )
