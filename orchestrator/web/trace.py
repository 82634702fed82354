"""A rollout's events as the cards of its trace.

Pure. Cards follow the sequence number. Events before a restart belong to an attempt that was cut
off: they are kept, folded, and the last attempt is the one that counts. An event of a kind that
this page does not know becomes a card with its raw JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from orchestrator.traces.exact import TooDeep
from orchestrator.web.code import language_of
from orchestrator.web.templatetags.formats import pretty_json
from orchestrator.web.text import cell, cut
from orchestrator.web.trace_media import Media, split_media
from orchestrator.web.trace_opened import KIND as OUTSIDE
from orchestrator.web.trace_opened import opened, pretty
from orchestrator.web.trace_tokens import TRAINED_KINDS

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
class Capped:
    """What a card of a long trace leaves out until it is asked for."""

    shown_lines: int
    lines: int
    hidden_chars: int


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
    """Beyond the preview: only the download has them."""
    body: str = ""
    """JSON, for a card that is drawn from nothing else."""
    reasoning: str = ""
    media: Sequence[Media] = ()
    capped: Capped | None = None


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
    payload, media = split_media(payload)
    if event.kind == "verdict":
        payload = {**payload, "is_negative": payload.get("criterion") in negatives}
    card = _MAKERS.get(event.kind, _unknown(event.kind))(event.seq, payload, event.at)
    return replace(card, media=media) if media else card


def raw_card(event: EventLike) -> Card:
    """The event as it is stored, without the bytes of its media."""
    payload, media = split_media(opened(event.kind, event.payload))
    data = {"kind": event.kind, "payload": payload}
    body, hidden = cut(pretty(payload))
    return Card(
        event.seq,
        "raw",
        event.at,
        event.kind,
        cell(event.kind, 80),
        "",
        data,
        hidden_chars=hidden,
        body=body,
        media=media,
    )


def _outside(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    # It makes cards of this module: imported at the top, the two would wait for each other.
    from orchestrator.web.trace_outside import outside

    try:
        return outside(seq, payload, at)
    except (ValueError, TooDeep, RecursionError):  # what cannot be laid out is shown as it is
        return _unknown(OUTSIDE)(seq, payload, at)


Maker = Callable[[int, Mapping[str, Any], datetime], Card]


def _unknown(kind: str) -> Maker:
    def make(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
        data = {"kind": kind, **payload}
        body, hidden = cut(pretty_json(payload))
        return Card(
            seq, "unknown", at, kind, cell(kind, 80), "", data, hidden_chars=hidden, body=body
        )

    return make


def _restarted(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    following = _int(payload.get("attempt"))
    number = following - 1 if following and following > 1 else 1
    shown = {"number": number, "reason": str(payload.get("reason") or "the worker stopped")}
    return Card(seq, "restarted", at, f"Attempt {number}", f"attempt {number}", "cut off", shown)


def _started(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    text, hidden = cut(str(payload.get("prompt") or ""))
    return Card(
        seq, "started", at, "Task", "Task", "", {**payload, "prompt": text}, hidden_chars=hidden
    )


def _told(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    raw = payload.get("functions")
    offered = [
        {
            "name": str(function.get("name") or ""),
            "description": str(function.get("description") or ""),
            "parameters": pretty_json(function.get("parameters")),
        }
        for one in (raw if isinstance(raw, list) else [])
        if isinstance(one, dict) and isinstance(function := one.get("function"), dict)
    ]
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


_REASONING = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)</\1>\s*", re.DOTALL)


def _action(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    text, hidden = cut(str(payload.get("text") or ""))
    reasoning = payload.get("reasoning")
    reasoning = reasoning if isinstance(reasoning, str) else ""
    if match := _REASONING.match(text):
        reasoning, text = f"{reasoning}{match[2].strip()}", text[match.end() :]
    step = _int(payload.get("step"))
    command, answer = payload.get("command"), payload.get("answer")
    said = command or answer or text or "(empty)"
    prefix = "answer: " if payload.get("form") == "answer" else ""
    whole = text.strip()
    return Card(
        seq=seq,
        kind="action",
        at=at,
        title=f"Action {step}" if step is not None else "Action",
        outline=cell(f"{prefix}{said}", 80),
        meta=_seconds(payload.get("latency_s")),
        payload={
            **payload,
            "text": text,
            "shown_arguments": _shown_arguments(payload),
            # What was said beside the command or the answer that was read out of it.
            "has_more": bool(whole)
            and any(isinstance(part, str) and part.strip() != whole for part in (command, answer))
            and whole not in (f"answer: {answer}", f"$ {command}"),
        },
        hidden_chars=hidden,
        reasoning=reasoning,
    )


def _shown_arguments(payload: Mapping[str, Any]) -> list[dict[str, str]]:
    """Arguments of a tool call: a text with its line breaks and language, anything else as JSON."""
    arguments = payload.get("arguments")
    tool = str(payload.get("tool") or "")
    shown = []
    for name, value in _items(arguments):
        is_text = isinstance(value, str)
        text = value if is_text else pretty_json(value)
        language = language_of(tool, name, text) if is_text else "json"
        shown.append({"name": str(name), "text": cut(text)[0], "language": language})
    return shown


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


def _removed(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    events, days = _int(payload.get("events")) or 0, _int(payload.get("rule_days")) or 0
    text = (
        f"{events:,} events went by the project's rule of retention, {days} days after the end. "
        "Score, verdicts and costs stay."
    )
    return Card(seq, "removed", at, "Trace removed", "trace removed", "", {"text": text})


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


_MAKERS: dict[str, Maker] = {
    OUTSIDE: _outside,
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
    "rollout.restarted": _restarted,
    "trace.removed": _removed,
}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else ""
