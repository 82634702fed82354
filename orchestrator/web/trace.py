"""A rollout's events as the cards of its trace.

Pure. Cards follow the sequence number. Events before a restart belong to an attempt that was cut
off: they are kept, folded, and the last attempt is the one that counts. An event of a kind that
this page does not know becomes a card with its raw JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from orchestrator.web.text import cell, cut

TRAINED_KINDS = frozenset({"action", "env_output"})

SEGMENT_WORDS = {
    "env_output": "environment",
    "warning": "warning, not trained",
    "scaffold": "wrapper’s words, not trained",
}


class EventLike(Protocol):
    seq: int
    kind: str
    payload: Any
    at: datetime


@dataclass(frozen=True)
class Segment:
    kind: str
    word: str
    text: str
    hidden_chars: int
    is_trained: bool


@dataclass(frozen=True)
class Card:
    seq: int
    kind: str
    at: datetime
    title: str
    outline: str
    """Its line in the outline; empty when it has none."""
    meta: str
    """Small grey text at the right of the outline: seconds, lines."""
    payload: Mapping[str, Any]
    segments: Sequence[Segment] = ()
    hidden_chars: int = 0


@dataclass
class Attempt:
    number: int
    cards: list[Card] = field(default_factory=list)
    cut_reason: str = ""
    """Why it was cut off; empty for the attempt that counts."""


def build_trace(
    events: Iterable[EventLike], negatives: Collection[str] = frozenset()
) -> list[Attempt]:
    """Attempts in order; the last is the one that counts. No events: one empty attempt.

    `negatives` are the criteria whose verdict is good when it is low.
    """
    attempts = [Attempt(number=1)]
    for event in events:
        payload = event.payload if isinstance(event.payload, dict) else {"value": event.payload}
        if event.kind == "rollout.restarted":
            attempts[-1].cut_reason = str(payload.get("reason") or "the worker stopped")
            attempts.append(Attempt(number=_int(payload.get("attempt")) or len(attempts) + 1))
            continue
        if event.kind == "rollout.started" and not attempts[-1].cards:
            attempts[-1].number = _int(payload.get("attempt")) or attempts[-1].number
        attempts[-1].cards.append(build_card(event, negatives))
    return attempts


def build_card(event: EventLike, negatives: Collection[str] = frozenset()) -> Card:
    payload = event.payload if isinstance(event.payload, dict) else {"value": event.payload}
    if event.kind == "verdict":
        payload = {**payload, "is_negative": payload.get("criterion") in negatives}
    maker = _MAKERS.get(event.kind)
    if maker is None:
        data = {"kind": event.kind, **payload}
        return Card(event.seq, "unknown", event.at, event.kind, event.kind, "", data)
    return maker(event.seq, payload, event.at)


def _started(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    text, hidden = cut(str(payload.get("prompt") or ""))
    return Card(
        seq, "started", at, "Task", "Task", "", {**payload, "prompt": text}, hidden_chars=hidden
    )


def _told(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    raw = payload.get("functions")
    offered = [f["function"] for f in raw if isinstance(f, dict)] if isinstance(raw, list) else []
    text, hidden = cut(str(payload.get("text") or ""))
    n = len(offered)
    return Card(
        seq=seq,
        kind="told",
        at=at,
        title="How to act",
        outline="how to act",
        meta=f"{n} function{'' if n == 1 else 's'}" if n else "in text",
        payload={"functions": offered, "text": text, "skills": payload.get("skills") or ""},
        hidden_chars=hidden,
    )


def _action(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    text, hidden = cut(str(payload.get("text") or ""))
    step = _int(payload.get("step"))
    said = payload.get("command") or payload.get("answer") or text or "(empty)"
    prefix = "answer: " if payload.get("form") == "answer" else ""
    return Card(
        seq=seq,
        kind="action",
        at=at,
        title=f"Action {step}" if step is not None else "Action",
        outline=cell(f"{prefix}{said}", 80),
        meta=_seconds(payload.get("latency_s")),
        payload={**payload, "text": text},
        hidden_chars=hidden,
    )


def _skill(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    """What the agent asked for, and what the harness answered; nothing of the environment."""
    text, hidden = cut(str(payload.get("content") or ""))
    name, file = str(payload.get("name") or ""), str(payload.get("file") or "")
    return Card(
        seq=seq,
        kind="skill",
        at=at,
        title="Skill",
        outline=cell(f"reads {name}{f', {file}' if file else ''}", 80),
        meta=_seconds(payload.get("latency_s")),
        payload={**payload, "name": name, "file": file, "content": text},
        hidden_chars=hidden,
    )


def _refused_skill(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    return _skill(seq, {**payload, "is_refused": True}, at)


def _observation(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    segments = []
    raw_segments = payload.get("segments")
    for raw in raw_segments if isinstance(raw_segments, list) else []:
        if not isinstance(raw, dict):
            continue
        kind = str(raw.get("kind", ""))
        text, hidden = cut(str(raw.get("text") or ""))
        segments.append(
            Segment(kind, SEGMENT_WORDS.get(kind, kind), text, hidden, kind in TRAINED_KINDS)
        )
    lines = sum(len(s.text.rstrip("\n").splitlines()) for s in segments if s.is_trained)
    status = payload.get("exit_status")
    failed = isinstance(status, int) and status != 0
    return Card(
        seq=seq,
        kind="observation",
        at=at,
        title="Output",
        outline=f"exit {status}" if failed else "output",
        meta=f"{lines} line{'' if lines == 1 else 's'}",
        payload=payload,
        segments=segments,
    )


def _verdict(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    name = str(payload.get("name") or payload.get("criterion") or "criterion")
    value = payload.get("value")
    meta = f"{value:.2f}" if isinstance(value, int | float) else str(payload.get("state", ""))
    return Card(seq, "verdict", at, name, name, meta.replace("_", " "), payload)


def _ended(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    return Card(seq, "ended", at, "End", "End", str(payload.get("state", "")), payload)


def _waiting(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    waited = _seconds(payload.get("waited_s"))
    return Card(seq, "waiting", at, "Waits for a session", "waits", waited, payload)


FILES_SHOWN = 40


def _final_state(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    """A summary: the report itself may take a megabyte, and the download has it."""
    state = payload.get("state")
    state = state if isinstance(state, dict) else {}
    files, tables = state.get("files"), state.get("tables")
    lines = [f"{path}  {_size(record)}" for path, record in sorted(_items(files))[:FILES_SHOWN]]
    lines += [f"table {name}  {_rows(table)}" for name, table in sorted(_items(tables))]
    others = sorted(set(state) - {"files", "tables"})
    lines += [f"{name}" for name in others[:FILES_SHOWN]]
    shown = {"lines": lines, "error": payload.get("error") or ""}
    return Card(seq, "final_state", at, "Final state", "final state", "", shown)


def _items(value: object) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _size(record: Any) -> str:
    size = record.get("size") if isinstance(record, dict) else None
    return f"{size} bytes" if isinstance(size, int) else ""


def _rows(table: Any) -> str:
    rows = table.get("rows") if isinstance(table, dict) else None
    n = table.get("n_rows", len(rows)) if isinstance(rows, list) else 0
    return f"{n} rows"


_MAKERS = {
    "waiting": _waiting,
    "final_state": _final_state,
    "rollout.started": _started,
    "told": _told,
    "skill.loaded": _skill,
    "skill.refused": _refused_skill,
    "action": _action,
    "observation": _observation,
    "verdict": _verdict,
    "rollout.ended": _ended,
    "rollout.judging": _ended,
}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else ""


@dataclass(frozen=True)
class TokenCell:
    """One token of the ledger: its place, id, kind and, where sampled, its log-probability."""

    place: int
    id: int
    kind: str
    logprob: float | None
    heat: int
    """0 (expected) to 5 (surprising); 0 where no log-probability exists."""


@dataclass(frozen=True)
class TokenSpan:
    kind: str
    count: int
    is_trained: bool
    cells: Sequence[TokenCell]
    """Empty for kinds that carry no log-probability."""
    mean_logprob: float | None


class TokenRowLike(Protocol):
    ids: Any
    kinds: Any
    logprobs: Any


def token_spans(row: TokenRowLike) -> list[TokenSpan]:
    """Runs of equal kind in order, with the sampler's log-probabilities of the action tokens."""
    spans: list[TokenSpan] = []
    logprobs = iter(row.logprobs)
    place = 0
    for kind, size in row.kinds:
        cells: list[TokenCell] = []
        if kind == "action":
            for offset in range(size):
                logprob = next(logprobs, None)
                cells.append(
                    TokenCell(place + offset, row.ids[place + offset], kind, logprob, heat(logprob))
                )
        known = [c.logprob for c in cells if c.logprob is not None]
        spans.append(
            TokenSpan(
                kind=kind,
                count=size,
                is_trained=kind in TRAINED_KINDS,
                cells=cells,
                mean_logprob=sum(known) / len(known) if known else None,
            )
        )
        place += size
    return spans


def heat(logprob: float | None) -> int:
    """Surprise in six steps: below 0.1, 0.5, 1, 2, 4 nats, and above."""
    if logprob is None:
        return 0
    return sum(-logprob >= bound for bound in (0.1, 0.5, 1.0, 2.0, 4.0))
