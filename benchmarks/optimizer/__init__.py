"""Optimisers against each other, in worlds where the exact quality of every document is known.

`worlds` says what a world is and holds the server that counts; `ruleworld` is the world of the
project's bars and `otherworld` one where effects do not add up. `ours`, `rival_gepa` and
`rival_skillopt` are the engines, `work` runs one of them, `results` runs all, `report` judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def run(arguments: Sequence[str] = ()) -> Iterator[Any]:
    # Rivals import this package too, and have nothing but numpy and themselves.
    from benchmarks.optimizer.__main__ import run as judged

    return judged(arguments)
