"""A play as cards of the transcript, as rollouts are shown. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.runs.acting import answer_in, form_of, text_in
from orchestrator.tryouts.play import Note, Play, PlayedStep, sentence
from orchestrator.tryouts.wording import readable
from orchestrator.web.text import cell
from orchestrator.web.trace import Card, build_card


@dataclass
class _Event:
    seq: int
    kind: str
    payload: Any
    at: datetime


@dataclass(frozen=True)
class ShownObservation:
    """An answer of the environment with what is folded below it."""

    card: Card
    number: int
    raw: str
    size_bytes: int
    is_shortened: bool
    metadata: str
    state: str | None
    n_after: int
    """Steps behind it. At 0 the session stands here: its state can be asked for."""


@dataclass(frozen=True)
class ShownStep:
    number: int
    action: Card
    observation: ShownObservation | None
    failure: Mapping[str, Any] | None
    is_running: bool
    verdicts: Sequence[Mapping[str, Any]]
    score: Mapping[str, Any] | None


@dataclass(frozen=True)
class ShownNote:
    """One line between steps."""

    seq: int
    look: str
    """`good`, `warn`, `bad` or nothing."""
    title: str
    text: str
    detail: str = ""


def first_observation(play: Play, at: datetime) -> ShownObservation | None:
    if play.reset is None:
        return None
    return _observation(play.reset_seq, play.reset, play.reset_state, at, n_after=len(play.steps))


def timeline(play: Play, at: datetime) -> list[ShownStep | ShownNote]:
    return [
        _note(item) if isinstance(item, Note) else _step(item, play, at) for item in play.timeline()
    ]


def _step(step: PlayedStep, play: Play, at: datetime) -> ShownStep:
    action = step.action
    payload = {
        "step": step.number,
        "text": readable(action),
        "form": form_of(action),
        "command": text_in(action, "command"),
        "answer": answer_in(action),
        "tokens": None,
    }
    return ShownStep(
        number=step.number,
        action=build_card(_Event(step.seq, "action", payload, at)),
        observation=_observation(
            step.seq + 1, step.observation, step.state, at, n_after=len(play.steps) - step.number
        )
        if step.observation is not None
        else None,
        failure=step.failure,
        is_running=step.is_running,
        verdicts=step.verdicts,
        score=step.score,
    )


def _observation(
    seq: int, payload: Mapping[str, Any], state: str | None, at: datetime, *, n_after: int
) -> ShownObservation:
    shown = {**payload, "truncated": payload["is_shortened"]}
    return ShownObservation(
        card=build_card(_Event(seq, "observation", shown, at)),
        number=payload["step"],
        raw=payload["observation"],
        size_bytes=payload["size_bytes"],
        is_shortened=payload["is_shortened"],
        metadata=payload["metadata"],
        state=state,
        n_after=n_after,
    )


def _note(note: Note) -> ShownNote:
    payload = note.payload
    if note.kind == "tryout.refused":
        action = payload.get("action")
        shown = json.dumps(action, ensure_ascii=False)
        what = f"Not sent: {cell(shown, 160)}" if action else "Refused"
        return ShownNote(note.seq, "warn", what, str(payload["reason"]))
    if note.kind == "tryout.failed":
        return ShownNote(
            note.seq,
            "bad",
            "The episode did not start",
            str(payload["message"]),
            str(payload["raw"]),
        )
    if note.kind == "tryout.replayed":
        return _replayed(note)
    if note.kind == "tryout.waiting":
        used = f"{payload['active']} of {payload['maximum']} sessions of its server were in use."
        return ShownNote(note.seq, "", "Waited for a free session", used)
    if note.kind == "tryout.lost":
        return ShownNote(note.seq, "bad", "Session lost", str(payload["message"]))
    return ShownNote(note.seq, "", "Closed", str(payload["message"]))


def _replayed(note: Note) -> ShownNote:
    payload = note.payload
    steps, undone = payload["steps"], payload["undone"]
    played = f"{steps} step{'' if steps == 1 else 's'}" if steps else "The reset was"
    again = f"{played} played again in {payload['latency_s']:.1f} s"
    title = f"{undone} step{'' if undone == 1 else 's'} undone" if undone else "Started again"
    found = sentence(payload["differences"])
    if payload["stopped"]:
        text = f"The replay stopped after {steps} steps: {payload['stopped']}. {found}".strip()
        return ShownNote(note.seq, "bad", title, text)
    if found:
        return ShownNote(note.seq, "warn", title, f"{again}. {found}")
    return ShownNote(note.seq, "good", title, f"{again}, with the same observations.")
