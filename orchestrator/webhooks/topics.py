"""What can be heard, and which events of the log say it. No database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_TURNS = ("paused", "completed", "failed", "cancelled", "awaiting_approval")
PING = "ping"


@dataclass(frozen=True)
class Topic:
    name: str
    title: str
    kind: str
    """Of the event."""
    fits: Callable[[str, Mapping[str, Any]], bool]
    """Whether an event of that kind, on a stream of that kind, says it."""


def _always(stream_kind: str, payload: Mapping[str, Any]) -> bool:
    return True


def _turned(stream_kind: str, payload: Mapping[str, Any]) -> bool:
    return payload.get("state") in _TURNS


def _of_climb(stream_kind: str, payload: Mapping[str, Any]) -> bool:
    return stream_kind == "climb"


def _of_training(stream_kind: str, payload: Mapping[str, Any]) -> bool:
    return stream_kind == "training_job"


TOPICS = (
    Topic("run.ended", "A run has ended", "run.ended", _always),
    Topic("gate.ended", "A gate has decided, or was cancelled", "gate.ended", _always),
    Topic("search.turned", "A search waits, pauses or has ended", "search.state", _turned),
    Topic("climb.turned", "A climb pauses or has ended", "climb.state", _turned),
    Topic("climb.rung", "A rung of a climb has its verdict", "rung", _of_climb),
    Topic("climb.alarm", "A rubric may be gamed", "alarm", _of_climb),
    Topic("training.ended", "A training has ended", "train.ended", _of_training),
    Topic("training.alarm", "A training may collapse", "train.alarm", _of_training),
)
NAMES = tuple(topic.name for topic in TOPICS)
KINDS = frozenset(topic.kind for topic in TOPICS)


def topic_of(kind: str, stream_kind: str, payload: Mapping[str, Any]) -> Topic | None:
    for topic in TOPICS:
        if topic.kind == kind and topic.fits(stream_kind, payload):
            return topic
    return None
