"""A server that knows what exists and ends the engine at the first thing that does not.

Running an engine again from its start with more answers reaches the same place, so a search has no
state of its own: it resumes by asking what is missing. Rows that no engine asked for are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from optimizer.edits import Edit
from optimizer.engines.contract import Ask, Doing, Request, Row
from optimizer.errors import BudgetSpent, SearchInvalid


class Missing(BaseException):
    """The engine cannot go on before something exists.

    Not an Exception: an engine may be somebody else's program, which takes those for a fault of one
    rollout and goes on.
    """


class MissingRollouts(Missing):
    def __init__(self, requests: Sequence[Request], doing: Doing) -> None:
        super().__init__(requests, doing)
        self.requests, self.doing = tuple(requests), doing


class MissingEdits(Missing):
    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.ask = ask


class ReplayServer:
    """Answers from rows and rounds of edits; `budget` is the number of rollouts it would ever ask
    for. Raises SearchInvalid for two rows of one request.
    """

    def __init__(
        self, rows: Iterable[Row], edits: Mapping[int, Sequence[Edit]], *, budget: int
    ) -> None:
        self._rows: dict[tuple[str, str, int], Row] = {}
        for row in rows:
            if row.key in self._rows:
                raise SearchInvalid(f"two rows of {row.candidate[:12]} on {row.task}")
            self._rows[row.key] = row
        self._edits = edits
        self._budget = budget
        self._asked: set[tuple[str, str, int]] = set()

    def rollouts(self, requests: Sequence[Request], doing: Doing) -> list[Row]:
        keys = [request.key for request in requests]
        repeated = [key for key, n in Counter(keys).items() if n > 1 or key in self._asked]
        if repeated:
            raise SearchInvalid(f"asked twice for replicate {repeated[0][2]} on {repeated[0][1]}")
        if len(self._asked) + len(keys) > self._budget:
            raise BudgetSpent(
                f"{len(keys)} rollouts more would pass the cap of {self._budget} "
                f"({len(self._asked)} are asked for)"
            )
        self._asked.update(keys)
        missing = [request for request in requests if request.key not in self._rows]
        if missing:
            raise MissingRollouts(missing, doing)
        return [self._rows[key] for key in keys]

    def edits(self, ask: Ask) -> Sequence[Edit]:
        known = self._edits.get(ask.round)
        if known is None:
            raise MissingEdits(ask)
        return known

    def check_rows(self) -> None:
        """Raises SearchInvalid if there are rows that were never asked for; call it at the end."""
        strangers = self._rows.keys() - self._asked
        if strangers:
            candidate, task, replicate = min(strangers)
            raise SearchInvalid(
                f"{len(strangers)} rows were never asked for, such as candidate {candidate[:12]} "
                f"on {task}, replicate {replicate}: they belong to another configuration or seed"
            )
