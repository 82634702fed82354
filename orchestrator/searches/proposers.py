"""Which proposers there are, and what the offline ones say.

`offline` stands for all operators that need no model. To add one: write it in
`optimizer.operators` and list it in OPERATORS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.edits import Edit
from optimizer.engines.contract import Ask
from optimizer.harness import Harness
from optimizer.models import Search
from optimizer.operators import Trace, from_references, from_successes, instruction_pool
from optimizer.store import load_harness
from orchestrator.proposing.services import PROPOSERS as OUTSIDE
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.traces import attempts_of, references_of

SUCCESS = 0.9
"""Score from which an attempt of the agent's own is a demonstration."""
OFFLINE = "offline"


@dataclass(frozen=True)
class Known:
    """What an operator may look at. Train tasks alone."""

    harness: Harness
    references: Sequence[Trace]
    attempts: Sequence[Trace]
    seed: int
    settings: Mapping[str, Any]

    @property
    def failed(self) -> int:
        return sum(t.score is not None and t.score < SUCCESS for t in self.attempts)


def _references(known: Known) -> list[Edit]:
    n = int(known.settings.get("demonstrations", 21))
    return from_references(known.references, count=n, seed=known.seed)


def _successes(known: Known) -> list[Edit]:
    n = int(known.settings.get("own_demonstrations", 6))
    return from_successes(known.attempts, count=n, seed=known.seed, at_least=SUCCESS)


def _instructions(known: Known) -> list[Edit]:
    return instruction_pool(support=known.failed)


OPERATORS: Mapping[str, Callable[[Known], list[Edit]]] = {
    "demonstrations.reference": _references,
    "demonstrations.success": _successes,
    "instructions": _instructions,
}
KNOWN = (OFFLINE, *OPERATORS, *OUTSIDE)


def offline(names: Sequence[str]) -> list[str]:
    return [name for name in names if name == OFFLINE or name in OPERATORS]


def outside(names: Sequence[str]) -> list[str]:
    """Those that are asked and answer later."""
    return [name for name in names if name in OUTSIDE]


def unknown(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in KNOWN]


def propose(*, search: Search, settings: SearchSettings, name: str, ask: Ask) -> list[Edit]:
    """What an offline proposer has to say in a round; the same whenever it is asked."""
    known = Known(
        harness=load_harness(search.seed_harness),
        references=references_of(search),
        attempts=attempts_of(search, ask.rows),
        seed=search.seed,
        settings=settings.proposer_settings.get(name, {}),
    )
    chosen = OPERATORS.values() if name == OFFLINE else [OPERATORS[name]]
    return [edit for operator in chosen for edit in operator(known)]
