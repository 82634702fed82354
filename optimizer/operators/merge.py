"""Crossing of candidates: each component from one parent, or two rewrites of one text in one.

Candidates are sets of edits of one seed, so an engine that switches edits on and off crosses them
without further ado. What it cannot do is to have two texts that exclude each other: two rewrites of
the instructions, say. `merged_texts` proposes the one with what the other has beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from optimizer.edits import Edit, Op, body_text, paragraphs
from optimizer.harness import Harness
from optimizer.lineage import component_of, crossover
from optimizer.paragraphs import tidy
from optimizer.seeds import derive

MAX_CANDIDATES = 4
"""The best; of more, the pairs would be too many to try."""


def merged_texts(candidates: Sequence[Sequence[Edit]], harness: Harness) -> list[Edit]:
    """Of two whole texts for one component: the better candidate's, with what is only in the other.

    They are alternatives to both, for all of them set the same body.
    """
    found: dict[str, Edit] = {}
    for better, other in combinations(candidates[:MAX_CANDIDATES], 2):
        for first, second in _rivals(better, other):
            if body_text(harness, first.component) is None:
                continue
            blocks = paragraphs(first.content)
            known = {_plain(block) for block in blocks}
            new = [b for b in paragraphs(second.content) if _plain(b) not in known]
            if not new:
                continue
            edit = Edit(
                Op.SET,
                first.component,
                content=tidy("\n\n".join([*blocks, *new])),
                operator="merge",
                support=max(first.support, second.support),
                group=first.group if first.group == second.group else "",
            )
            found.setdefault(edit.sha256, edit)
    return list(found.values())


def crossings(
    first: Sequence[Edit], second: Sequence[Edit], *, count: int, seed: int
) -> list[tuple[Edit, ...]]:
    """At most `count` children of two candidates, unlike both; each component from one parent."""
    components = sorted({component_of(edit) for edit in (*first, *second)})
    parents = {_key(first), _key(second)}
    children: dict[frozenset[str], tuple[Edit, ...]] = {}
    for number in range(4 * count):
        take_first = {name: derive(seed, "crossing", number, name) % 2 == 0 for name in components}
        child = crossover(first, second, take_first)
        if _key(child) not in parents:
            children.setdefault(_key(child), child)
        if len(children) == count:
            break
    return list(children.values())


def _rivals(better: Sequence[Edit], other: Sequence[Edit]) -> Iterator[tuple[Edit, Edit]]:
    for first in better:
        for second in other:
            if (
                first.is_whole
                and second.is_whole
                and first.component == second.component
                and first.sha256 != second.sha256
            ):
                yield first, second


def _key(edits: Sequence[Edit]) -> frozenset[str]:
    return frozenset(edit.sha256 for edit in edits)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
