"""What judges may spend in one attack: a cap in dollars, kept in the process that attacks.

A call is reserved at what it may cost at most and settled at what it did cost, so that the cap
holds with several calls in flight. Equal questions that were asked before cost nothing and are not
seen here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from orchestrator.agents.models import ModelEndpoint
from rubrics.errors import CriterionFailed
from rubrics.judge.question import Question

CHARS_PER_TOKEN = 3
"""Of a prompt, on the safe side: English has about four."""


@dataclass
class CappedPurse:
    """See `orchestrator.judging.judges.Purse`. Safe in several threads."""

    cap_usd: float
    spent_usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    refused: int = 0
    _held: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, key: str, question: Question, endpoint: ModelEndpoint) -> None:
        most = _most_usd(question, endpoint)
        with self._lock:
            left = self.cap_usd - self.spent_usd - sum(self._held.values())
            if most > left:
                self.refused += 1
                raise CriterionFailed(
                    f"The cap of ${self.cap_usd:.2f} for judges in this attack has ${left:.4f} "
                    f"left; the call may cost ${most:.4f}. Raise the cap and attack again."
                )
            self._held[key] = most

    def settle(self, key: str, cost_usd: float, tokens: int) -> None:
        with self._lock:
            self._held.pop(key, None)
            self.spent_usd += cost_usd
            self.tokens += tokens
            self.calls += 1


def _most_usd(question: Question, endpoint: ModelEndpoint) -> float:
    tokens_in = (len(question.system) + len(question.user)) / CHARS_PER_TOKEN
    return (
        tokens_in * endpoint.price_in_usd_per_mtok
        + question.sampling.max_tokens * endpoint.price_out_usd_per_mtok
    ) / 1e6
