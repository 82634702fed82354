"""What the ladder shows of a turn: what was advised, why, and what a person may say instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.plateau import Next
from orchestrator.climbs.models import Climb, ClimbState, Phase
from orchestrator.climbs.turns import is_trainable
from orchestrator.web.search_figures import EffectSpan, effect_spans
from orchestrator.web.search_page import real

WORDS = {"harness": "another search", "weights": "weights", "stop": "the end"}
CHOICES = (
    ("harness", "Another search", "optimise"),
    ("weights", "Train the weights", "train"),
    ("stop", "End the climb", "stop"),
)


@dataclass(frozen=True)
class OutlookRow:
    word: str
    gain: float
    low: float
    high: float
    rate: float
    """Gain per rollout."""
    span: EffectSpan
    is_advised: bool


@dataclass(frozen=True)
class Turn:
    reason: str
    is_decided: bool
    chosen: str
    is_overruled: bool
    overruled: str
    """What a person said before the turn."""
    outlooks: Sequence[OutlookRow]
    choices: Sequence[tuple[str, str, str]]
    """Key, word and icon of what may be chosen instead."""
    is_reopening: bool


def turn_of(climb: Climb) -> Turn | None:
    """None while there is nothing to say and nothing to decide."""
    advice = climb.advice or {}
    choices = _choices(climb)
    if not advice and not choices:
        return None
    chosen = str(advice.get("chosen", ""))
    return Turn(
        reason=str(advice.get("reason", "")),
        is_decided=bool(chosen),
        chosen=WORDS.get(chosen, chosen),
        is_overruled=bool(chosen) and chosen != advice.get("next"),
        overruled=WORDS.get(climb.overruled, climb.overruled),
        outlooks=_outlooks(advice),
        choices=choices,
        is_reopening=climb.state == ClimbState.COMPLETED,
    )


def _outlooks(advice: Mapping[str, object]) -> list[OutlookRow]:
    found = []
    for key in (Next.HARNESS, Next.WEIGHTS):
        data = advice.get(str(key))
        if not isinstance(data, Mapping):
            continue
        numbers = [real(data.get(name)) for name in ("gain", "low", "high", "rate")]
        if None not in numbers:
            found.append((str(key), [n for n in numbers if n is not None]))
    spans = effect_spans([(gain, low, high) for _, (gain, low, high, _) in found])
    return [
        OutlookRow(WORDS[key], gain, low, high, rate, span, advice.get("next") == key)
        for (key, (gain, low, high, rate)), span in zip(found, spans, strict=True)
    ]


def _choices(climb: Climb) -> list[tuple[str, str, str]]:
    """Those that `climbs.turns.overrule` would take now."""
    is_reopening = climb.state == ClimbState.COMPLETED and (climb.advice or {}).get(
        "chosen"
    ) == str(Next.STOP)
    if climb.phase in (Phase.TRAIN, Phase.ECHO_TEST) or (climb.has_ended and not is_reopening):
        return []
    allowed = {"harness", "stop"} | ({"weights"} if is_trainable(climb) else set())
    if is_reopening:
        allowed.discard("stop")
    allowed.discard(climb.overruled)
    return [choice for choice in CHOICES if choice[0] in allowed]
