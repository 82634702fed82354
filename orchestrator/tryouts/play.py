"""A tryout's events as the play that stands: reset, steps, and what was said between. Pure.

The log keeps everything; a play is what is left of it after resets and undone steps. Pages show
it, a replay repeats it, a reference transcript is made of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class EventLike(Protocol):
    seq: int
    kind: str
    payload: Any
    at: Any


@dataclass
class PlayedStep:
    """One action and what it brought."""

    number: int
    """From 1."""
    seq: int
    """Of its action's event."""
    action: Any
    observation: dict[str, Any] | None = None
    """The payload of its observation; None while it is not there, or where it failed."""
    failure: dict[str, Any] | None = None
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    """Of the rubric on the steps up to this one."""
    score: dict[str, Any] | None = None
    state: str | None = None
    """The environment's state after it, where somebody has asked for it."""

    @property
    def is_running(self) -> bool:
        return self.observation is None and self.failure is None

    @property
    def done(self) -> bool:
        return self.observation is not None and bool(self.observation["done"])


@dataclass
class Note:
    """Something between the steps that a person should know."""

    seq: int
    kind: str
    payload: Mapping[str, Any]
    after: int
    """Number of the step before it; 0 for the reset."""


@dataclass
class Play:
    reset: dict[str, Any] | None = None
    """Payload of the reset's event; None before the first."""
    reset_seq: int = 0
    reset_failure: dict[str, Any] | None = None
    reset_state: str | None = None
    steps: list[PlayedStep] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    last_seq: int = 0
    graded_by: str = ""
    """The rubric of the newest breakdown."""

    @property
    def is_over(self) -> bool:
        """No further step can be taken without an undo or a reset."""
        return bool(self.steps) and (self.steps[-1].done or self.steps[-1].failure is not None)

    @property
    def is_done(self) -> bool:
        """The environment itself has ended the episode."""
        return bool(self.steps) and self.steps[-1].done

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.reset["params"]) if self.reset else {}

    def timeline(self) -> list[Note | PlayedStep]:
        """Steps with the notes between them, in the order of their numbers."""
        items: list[Note | PlayedStep] = [note for note in self.notes if note.after == 0]
        for step in self.steps:
            items.append(step)
            items += [note for note in self.notes if note.after == step.number]
        return items


Folder = Callable[[Play, int, dict[str, Any]], Play]
"""Takes an event's sequence and payload into the play."""


def fold(events: Iterable[EventLike]) -> Play:
    """The play that stands after these events of one stream, in order."""
    play = Play()
    for event in events:
        play.last_seq = event.seq
        payload = event.payload if isinstance(event.payload, dict) else {}
        handler = _FOLDERS.get(event.kind)
        if handler is not None:
            play = handler(play, event.seq, payload)
            play.last_seq = event.seq
    return play


def _reset(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    return Play(reset=payload, reset_seq=seq)


def _action(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    play.steps.append(PlayedStep(number=payload["step"], seq=seq, action=payload["action"]))
    return play


def _observation(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    if play.steps:
        play.steps[-1].observation = payload
    return play


def _failed(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    if payload["step"] == 0:
        # The episode that ran before it is closed by then.
        return Play(reset_failure=payload, notes=[Note(seq, "tryout.failed", payload, 0)])
    if play.steps:
        play.steps[-1].failure = payload
    return play


def _refused(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    if play.steps and play.steps[-1].is_running:
        play.steps.pop()
    return _noted("tryout.refused")(play, seq, payload)


def _replayed(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    del play.steps[payload["steps"] :]
    changed = payload["observations"]
    if "0" in changed:
        play.reset = changed["0"]
    for step in play.steps:
        step.observation = changed.get(str(step.number), step.observation)
    play.notes = [note for note in play.notes if note.after <= len(play.steps)]
    return _noted("tryout.replayed")(play, seq, payload)


def _graded(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    play.graded_by = payload["rubric"]
    for step in play.steps:
        if step.number == payload["step"]:
            step.verdicts, step.score = payload["verdicts"], payload["score"]
    return play


def _state(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    if payload["step"] == 0:
        play.reset_state = payload["state"]
    for step in play.steps:
        if step.number == payload["step"]:
            step.state = payload["state"]
    return play


def _lost(play: Play, seq: int, payload: dict[str, Any]) -> Play:
    if play.steps and play.steps[-1].is_running:
        play.steps.pop()  # nobody knows what it did; a replay must not repeat it unasked
    return _noted("tryout.lost")(play, seq, payload)


def _noted(kind: str) -> Folder:
    def note(play: Play, seq: int, payload: dict[str, Any]) -> Play:
        play.notes.append(Note(seq, kind, payload, len(play.steps)))
        return play

    return note


_FOLDERS: dict[str, Folder] = {
    "tryout.reset": _reset,
    "tryout.action": _action,
    "tryout.observation": _observation,
    "tryout.failed": _failed,
    "tryout.refused": _refused,
    "tryout.replayed": _replayed,
    "tryout.graded": _graded,
    "tryout.state": _state,
    "tryout.lost": _lost,
    "tryout.waiting": _noted("tryout.waiting"),
    "tryout.ended": _noted("tryout.ended"),
}


# --- did the same thing happen again? ------------------------------------------------------------


def digests_of(fields: Mapping[str, Any], *, reward: float | None, done: bool) -> dict[str, str]:
    """What an observation says, field by field, in few bytes. Metadata is not part of it."""
    parts = {**fields, "reward": reward, "done": done}
    return {
        str(name): hashlib.sha256(
            json.dumps(value, sort_keys=True, default=str).encode()
        ).hexdigest()[:16]
        for name, value in parts.items()
    }


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names of the fields that are not the same, in alphabetical order."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def sentence(found: Sequence[Mapping[str, Any]]) -> str:
    """What differed in a replay, for people."""
    if not found:
        return ""
    first = found[0]
    where = "after the reset" if first["step"] == 0 else f"at step {first['step']}"
    more = f", and in {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"The environment is not deterministic: {where} it answered differently to the same seed "
        f"and the same actions ({', '.join(first['fields'])}){more}."
    )
