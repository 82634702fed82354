"""The parts of a rollout's trace as HTML, within a budget: what the page and its windows are sent.

One event is one slot: `<div class="slot" data-slot="seq">` around its card. A first answer stays
small whatever the events hold: texts are cut in their cards, and slots are added until the budget
is spent. The page asks for all others as they come into view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.template.loader import get_template
from django.urls import reverse

from orchestrator.web.trace import Card, EventLike, build_card, raw_card
from orchestrator.web.trace_cap import capped

FIRST_EVENTS = 40
FIRST_CHARS = 90_000
WINDOW_CHARS = 400_000


@dataclass(frozen=True)
class Drawing:
    """How the cards of one rollout are drawn."""

    project_id: int
    rollout_id: int
    n_steps: int
    negatives: Collection[str] = frozenset()
    cited: Mapping[int, Sequence[CitedVerdict]] | None = None
    """Verdicts by the event that they cite."""
    is_raw: bool = False
    is_whole: bool = False
    """Texts are not cut to some lines; the preview's limit still counts."""

    def card(self, event: EventLike) -> Card:
        card = raw_card(event) if self.is_raw else build_card(event, self.negatives)
        return card if self.is_whole else capped(card)

    @property
    def context(self) -> dict[str, Any]:
        place = [self.project_id, self.rollout_id]
        return {
            "event_url": reverse("web:rollout_event", args=[*place, 0]).removesuffix("0/"),
            "n_steps": self.n_steps,
            "verdicts_at": self.cited or {},
        }


def slots(
    events: Iterable[EventLike], drawing: Drawing, *, budget_chars: int
) -> tuple[list[str], list[str]]:
    """Cards and lines of the outline, for as many events as the budget allows; at least one."""
    slot, line = get_template("web/trace/slot.html"), get_template("web/trace/outline.html")
    context = drawing.context
    cards: list[str] = []
    lines: list[str] = []
    spent = 0
    for event in events:
        card = drawing.card(event)
        html = slot.render({**context, "card": card})
        spent += len(html)
        if cards and spent > budget_chars:
            break
        cards.append(html)
        lines.append(line.render({"card": card}))
    return cards, lines


def outline(events: Iterable[EventLike], drawing: Drawing) -> list[str]:
    line = get_template("web/trace/outline.html")
    return [line.render({"card": drawing.card(event)}) for event in events]


@dataclass(frozen=True)
class CitedVerdict:
    name: str
    state: str
    value: float | None
    is_negative: bool


def cited_verdicts(
    verdicts: Iterable[Any], negatives: Collection[str]
) -> dict[int, list[CitedVerdict]]:
    """Verdicts by the events they cite, to be shown at the step that earned them."""
    cited: dict[int, list[CitedVerdict]] = {}
    for verdict in verdicts:
        is_negative = verdict.criterion in negatives
        shown = CitedVerdict(verdict.name, verdict.state, verdict.value, is_negative)
        for seq in verdict.cites if isinstance(verdict.cites, list) else []:
            if isinstance(seq, int):
                cited.setdefault(seq, []).append(shown)
    return cited
