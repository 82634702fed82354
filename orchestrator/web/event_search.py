"""Full-text search over a project's traces, for its page: hits with the place in their text.

A page looks at the newest matches, at most `LOOKED_AT`; where a filter leaves fewer than a page of
them, it says so and goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.events.models import Event
from orchestrator.events.search import Hit, search_events
from orchestrator.events.search_text import INDEXED_KINDS, phrases_of
from orchestrator.runs.models import Rollout
from orchestrator.traces.exact import Number
from orchestrator.web.terminal import without_sequences
from orchestrator.web.trace_opened import KIND as OUTSIDE
from orchestrator.web.trace_opened import opened

PER_PAGE = 50
LOOKED_AT = 2_000
KINDS = sorted(INDEXED_KINDS)
_BEFORE, _AFTER = 70, 180
_TOLD_BY = 20_000
"""Characters of a text in which the place is looked for."""


@dataclass(frozen=True)
class Found:
    event: Event
    rollout: Rollout
    snippet: Sequence[tuple[str, bool]]
    """Parts of the text around the first word, and whether each is a word of the query."""

    @property
    def kind(self) -> str:
        """As the producer calls it, for an event from outside."""
        payload = self.event.payload
        named = payload.get("name") if isinstance(payload, dict) else None
        return named if self.event.kind == OUTSIDE and isinstance(named, str) else self.event.kind


@dataclass(frozen=True)
class FoundPage:
    rows: Sequence[Found]
    next_before: int | None
    """Keyset of the page with what is older; None at the end."""
    has_looked_on: bool = False
    """Not a full page though there are older matches: the filter left those out."""


def search_page(
    project_id: int, query: str, *, kind: str = "", before_id: int | None = None
) -> FoundPage:
    """Four queries. Events of tryouts are for editors of their environment and not found here."""
    wanted = LOOKED_AT if kind else PER_PAGE + 1
    hits = search_events(project_id, query, limit=wanted, before_id=before_id)
    kept = _kept(hits, kind)
    page = kept[:PER_PAGE]
    has_more = len(hits) == wanted or len(kept) > PER_PAGE
    ids = [hit.event_id for hit in page]
    events = Event.objects.in_bulk(ids)
    rollouts = Rollout.everything.select_related(
        "task", "run__environment_version__environment"
    ).in_bulk({hit.stream_id for hit in page}, field_name="stream_id")
    pattern = pattern_of(query)
    rows = [
        Found(events[hit.event_id], rollout, snippet(events[hit.event_id], pattern))
        for hit in page
        if (rollout := rollouts.get(hit.stream_id)) is not None
    ]
    last = page[-1].event_id if len(kept) > PER_PAGE else hits[-1].event_id if hits else 0
    return FoundPage(rows, last if has_more else None, has_more and len(kept) <= PER_PAGE)


def _kept(hits: Sequence[Hit], kind: str) -> list[Hit]:
    if not kind:
        return list(hits)
    ids = [hit.event_id for hit in hits]
    of_kind = set(Event.objects.filter(pk__in=ids, kind=kind).values_list("pk", flat=True))
    return [hit for hit in hits if hit.event_id in of_kind]


# Snippets


def pattern_of(query: str) -> re.Pattern[str] | None:
    """Finds the words of a query in a text, letter case ignored; None for a query without words."""
    parts = []
    for phrase in phrases_of(query):
        inside = r"[\W_]*".join(re.escape(word) for word in phrase.words)
        # A word ends where letters end, unless its script has no spaces or only its beginning
        # was asked for.
        end = "" if phrase.is_prefix or not phrase.words[-1].isascii() else r"(?![^\W_])"
        start = r"(?<![^\W_])" if phrase.words[0].isascii() else ""
        parts.append(f"{start}{inside}{end}")
    return re.compile("|".join(parts), re.IGNORECASE) if parts else None


def snippet(event: Any, pattern: re.Pattern[str] | None) -> list[tuple[str, bool]]:
    """What stands around the first hit: in one of the texts, else across them and their names."""
    value = opened(event.kind, event.payload)
    texts = [_line(text) for text in _texts(value)]
    for text in [*texts, _line(" ".join(_texts(value, with_keys=True)))]:
        if pattern is not None and (match := pattern.search(text)):
            start, end = max(0, match.start() - _BEFORE), match.end() + _AFTER
            return _parts(text, start, min(len(text), end), pattern)
    first = max(texts, key=len, default="")
    return [(first[:_AFTER] + ("…" if len(first) > _AFTER else ""), False)] if first else []


def _line(text: str) -> str:
    return " ".join(without_sequences(text[:_TOLD_BY]).split())


def _parts(text: str, start: int, end: int, pattern: re.Pattern[str]) -> list[tuple[str, bool]]:
    parts = [("…", False)] if start else []
    place = start
    for match in pattern.finditer(text, start, end):
        if match.start() > place:
            parts.append((text[place : match.start()], False))
        parts.append((match.group(), True))
        place = match.end()
    if place < end:
        parts.append((text[place:end], False))
    if end < len(text):
        parts.append(("…", False))
    return parts


def _texts(value: Any, *, with_keys: bool = False) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Number):
            yield item.token
        elif isinstance(item, dict):
            pairs = reversed(item.items())
            stack.extend(part for k, v in pairs for part in ((v, k) if with_keys else (v,)))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)
