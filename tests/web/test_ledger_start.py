"""A ledger opens where training begins, with the end of the prompt before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.web.ledger import LEAD_IN, first_of_interest


@pytest.mark.parametrize(
    ("n_context", "n_trained", "start"),
    [(0, 5, 0), (4 * LEAD_IN, 5, 0), (500, 5, 500 - LEAD_IN), (500, 0, 0), (0, 0, 0)],
)
def test_the_long_prompt_is_passed_over(n_context: int, n_trained: int, start: int) -> None:
    entries: list[Any] = [SimpleNamespace(is_trained=False)] * n_context
    entries += [SimpleNamespace(is_trained=True)] * n_trained
    assert first_of_interest(entries) == start
