"""One colour for a run or a training job, the same in every chart, table and legend.

It follows from the id and not from the place in a list: what is hidden or filtered takes no colour
from the others. Ten colours, each at least 3 to 1 on both grounds (`--run-0` to `--run-9` in
tokens.css), then the same ten dashed. Ids are given out in order, so twenty that were started one
after the other all look different.
"""

from __future__ import annotations

from dataclasses import dataclass

N_COLOURS = 10


@dataclass(frozen=True)
class RunColour:
    slot: int
    """Of the ten: `--run-<slot>`."""
    is_dashed: bool


def colour_of(pk: int) -> RunColour:
    return RunColour(pk % N_COLOURS, pk // N_COLOURS % 2 == 1)
