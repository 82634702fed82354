"""Candidates of a search as a tree, and as points of score against price.

A mixture that the screen tried on a rollout or two is not ranked on its own: it is counted, and
left out of tree and plot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from optimizer.models import Candidate, Comparison, Edit, HarnessVersion
from orchestrator.web.search_edits import few_words
from orchestrator.web.search_figures import PointIn
from orchestrator.web.search_page import certificate_of

FEW = 5
"""Rollouts below which the mean of a candidate says nothing by itself."""
TREE_SHOWN, TREE_LIMIT = 20, 80
"""Candidates at once, and with the fold opened."""
DEEPEST = 8
"""Levels that are indented; deeper ones stand below the last."""


@dataclass(frozen=True)
class TreeRow:
    candidate: Candidate
    depth: int
    is_seed: bool
    is_winner: bool
    n_edits: int
    new_edits: Sequence[str]
    """What it has that its parent has not, in a few words each."""
    lost_edits: int
    change: float | None
    """Score against its parent's."""
    diff_url: str
    """To its difference from the seed; empty for the seed."""

    @property
    def indent(self) -> int:
        return min(self.depth, DEEPEST)


@dataclass(frozen=True)
class Tree:
    rows: Sequence[TreeRow]
    rest: Sequence[TreeRow]
    """Folded."""
    mixtures: int
    """Mixtures of edits with too few rollouts to be ranked, not shown."""
    more: int
    """Candidates beyond the limit."""


def candidate_tree(
    candidates: Sequence[Candidate],
    edits: Sequence[Edit],
    winner: Candidate | None,
    diff_url: Callable[[HarnessVersion], str],
) -> Tree:
    """Parents before their children, the better child first."""
    shown = {c.pk: c for c in candidates if is_ranked(c, winner)}
    names = {edit.sha256: few_words(edit.data) for edit in edits}
    children: dict[int | None, list[Candidate]] = {}
    by_pk = {c.pk: c for c in candidates}
    parents = {c.pk: by_pk.get(c.parent_id or 0) or _nearest(c, shown) for c in shown.values()}
    for candidate in shown.values():
        parent = parents[candidate.pk]
        children.setdefault(parent.pk if parent and parent.pk in shown else None, []).append(
            candidate
        )
    rows: list[TreeRow] = []
    way = _way_to(winner, parents)
    # Roots last in, first out; a cycle cannot be reached from a root and shows nothing.
    waiting = [(c, 0) for c in _best_first(children.get(None, ()), way)[::-1]]
    while waiting:
        candidate, depth = waiting.pop()
        origin = parents[candidate.pk]
        before = set(origin.edits) if origin else set()
        new = [names.get(sha, sha[:8]) for sha in candidate.edits if sha not in before]
        change = None
        if origin and origin.score is not None and candidate.score is not None:
            change = candidate.score - origin.score
        rows.append(
            TreeRow(
                candidate=candidate,
                depth=depth,
                is_seed=not candidate.edits,
                is_winner=winner is not None and candidate.pk == winner.pk,
                n_edits=len(candidate.edits),
                new_edits=new,
                lost_edits=len(before - set(candidate.edits)),
                change=change,
                diff_url=diff_url(candidate.harness) if candidate.edits else "",
            )
        )
        waiting += [(c, depth + 1) for c in _best_first(children.get(candidate.pk, ()), way)[::-1]]
    return Tree(
        rows[:TREE_SHOWN],
        rows[TREE_SHOWN:TREE_LIMIT],
        len(candidates) - len(shown),
        max(0, len(rows) - TREE_LIMIT),
    )


def _nearest(candidate: Candidate, shown: Mapping[int, Candidate]) -> Candidate | None:
    """Where nobody says what it came from: the one that has most of its edits and no other."""
    own = set(candidate.edits)
    below = [c for c in shown.values() if own > set(c.edits)]
    return max(below, key=lambda c: (len(c.edits), -c.pk), default=None)


def is_ranked(candidate: Candidate, winner: Candidate | None = None) -> bool:
    return (
        not candidate.edits
        or candidate == winner
        or candidate.status != Candidate.Status.SCREENING
        or candidate.rollouts >= FEW
    )


def _way_to(winner: Candidate | None, parents: Mapping[int, Candidate | None]) -> set[int]:
    """The winner and those that it came from."""
    way: set[int] = set()
    while winner is not None and winner.pk not in way:
        way.add(winner.pk)
        winner = parents.get(winner.pk)
    return way


def _best_first(candidates: Iterable[Candidate], way: Collection[int]) -> list[Candidate]:
    """Those on the way to the winner before all others."""
    return sorted(
        candidates,
        key=lambda c: (
            bool(c.edits),
            c.pk not in way,
            -(c.score if c.score is not None else -1),
            c.pk,
        ),
    )


def winner_of(
    candidates: Sequence[Candidate], comparisons: Sequence[Comparison], found: int | None = None
) -> Candidate | None:
    """The candidate that the search ended with, `found` being its harness; else the one that the
    certificate speaks of.
    """
    certificate = certificate_of(comparisons)
    for candidate in candidates:
        if candidate.edits and candidate.harness_id == found:
            return candidate
    for candidate in candidates:
        if candidate.status == Candidate.Status.CERTIFIED:
            return candidate
    if certificate is None:
        return None
    wanted = sorted(certificate.details.get("edits", ()))
    return next((c for c in candidates if c.edits and sorted(c.edits) == wanted), None)


PRICES = {
    "cost": ("cost_usd", "usd", "US dollars per rollout"),
    "tokens": ("tokens", "tokens", "tokens per rollout"),
    "latency": ("latency_s", "s", "seconds per rollout"),
}


def price_chosen(candidates: Sequence[Candidate], asked: str) -> str:
    """What was asked for; else the first that tells candidates apart. Local models are free."""
    if asked in PRICES:
        return asked
    for name, (attribute, *_) in PRICES.items():
        values = {getattr(c, attribute) for c in candidates if is_ranked(c)} - {None}
        if len(values) > 1:
            return name
    return "tokens"


def pareto_points(
    candidates: Sequence[Candidate], price: str, winner: Candidate | None
) -> list[PointIn]:
    """Candidates that have both numbers."""
    attribute = PRICES[price][0]
    found = []
    for candidate in candidates:
        value = getattr(candidate, attribute)
        if not is_ranked(candidate, winner) or candidate.score is None or value is None:
            continue
        is_winner = winner is not None and candidate.pk == winner.pk
        look = (
            "winner"
            if is_winner
            else "seed"
            if not candidate.edits
            else "rejected"
            if candidate.status == Candidate.Status.REJECTED
            else "other"
        )
        name = {"winner": f"{candidate.harness.short}, winner", "seed": "seed"}.get(
            look, candidate.harness.short
        )
        found.append(PointIn(str(candidate.pk), name, candidate.score, float(value), look))
    return found
