"""From a value, JSON or text, to a verdict on a scale. Nothing is guessed, clamped or invented.

The rules are those of the product's reference on judge replies: words mean yes and no on binary
criteria only, a number has ASCII digits and a point, another scale than the declared one is an
error, and what says two things says nothing.
"""

from __future__ import annotations

import math
import re
import unicodedata

from rubrics.judge.scale import NOT_APPLICABLE, Problem, Reading, Scale
from rubrics.judge.tolerant_json import Pairs, Value
from rubrics.types import State

SCORE, VERDICT, NA = "score", "verdict", "not_applicable"
VERDICT_KEYS = frozenset({SCORE, VERDICT, NA})
LIST_KEYS = ("scores", "verdicts", "results", "criteria")
MAXIMUM_KEYS = ("max", "max_score", "out_of")
YES = frozenset({"true", "yes", "pass", "passed", "met"})
NO = frozenset({"false", "no", "fail", "failed", "unmet", "not met"})
NA_WORDS = frozenset({"n/a", "na", "not applicable"})
NOT_FINITE = frozenset({"nan", "inf", "infinity"})
WORDS = YES | NO | NA_WORDS | NOT_FINITE

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_PLAIN = re.compile(_NUMBER)
_FRACTION = re.compile(rf"({_NUMBER})\s*(?:/|\s[oO][uU][tT]\s+[oO][fF]\s)\s*({_NUMBER})")
_PERCENT = re.compile(rf"({_NUMBER})\s*%")


def has_verdict_key(value: Value) -> bool:
    return isinstance(value, Pairs) and any(key.lower() in VERDICT_KEYS for key, _ in value.items)


def read_value(scale: Scale, value: Value) -> Reading:
    """A whole JSON value as a verdict."""
    if isinstance(value, Pairs):
        return _read_object(scale, value)
    if isinstance(value, list):
        return _only_entry(scale, value)
    return _read_score(scale, value)


def is_value_text(text: str) -> bool:
    """Whether a bare line is one of the texts that stand for a verdict."""
    text = text.strip()
    return bool(
        _PLAIN.fullmatch(text)
        or _FRACTION.fullmatch(text)
        or _PERCENT.fullmatch(text)
        or text.lstrip("+-").lower() in NOT_FINITE
        or text.lower() in WORDS
    )


def read_text(scale: Scale, text: str) -> Reading:
    """A text (JSON string, label's value, bare reply) as a verdict."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return _read_number(scale, float(text))
    if match := _FRACTION.fullmatch(text):
        return _on_scale(scale, match.group(1), float(match.group(2)))
    if match := _PERCENT.fullmatch(text):
        return _on_scale(scale, match.group(1), 100.0)
    word = text.lower()
    if word.lstrip("+-") in NOT_FINITE:
        return Reading.errored(Problem.NOT_FINITE)
    if word in YES or word in NO:
        return _read_bool(scale, word in YES)
    if word in NA_WORDS:
        return _not_applicable(scale)
    if text.startswith(("{", "[")):
        return Reading.errored(Problem.WRONG_TYPE)
    if any(is_digit(character) for character in text):
        return Reading.errored(Problem.NUMBER_FORMAT)
    return Reading.errored(Problem.WRONG_TYPE)


def is_digit(character: str) -> bool:
    """A digit of any script; fractions in one character too."""
    return unicodedata.category(character) in ("Nd", "Nl", "No")


# --- objects and lists ---------------------------------------------------------------------------


def _read_object(scale: Scale, pairs: Pairs) -> Reading:
    fields: dict[str, Value] = {}
    for key, value in pairs.items:
        name = key.lower()
        if name in fields and not _equal(fields[name], value):
            return Reading.errored(Problem.AMBIGUOUS)
        fields.setdefault(name, value)
    for name in LIST_KEYS:
        held = fields.get(name)
        if isinstance(held, list):
            return _only_entry(scale, held)
        if isinstance(held, Pairs):
            return _only_entry(scale, [value for _, value in held.items])
    if not VERDICT_KEYS & fields.keys():
        return Reading.errored(Problem.NO_VERDICT)
    if any(_is_other_maximum(scale, fields[name]) for name in MAXIMUM_KEYS if name in fields):
        return Reading.errored(Problem.SCALE_MISMATCH)
    return _read_fields(scale, fields)


def _read_fields(scale: Scale, fields: dict[str, Value]) -> Reading:
    name = SCORE if SCORE in fields else VERDICT
    value = fields.get(name)
    if fields.get(NA) is True:
        if value is None or _says_na(value):
            return _not_applicable(scale)
        return Reading.errored(Problem.AMBIGUOUS)
    reading = _read_score(scale, value)
    if name == SCORE and VERDICT in fields and _contradicts(scale, reading, fields[VERDICT]):
        return Reading.errored(Problem.AMBIGUOUS)
    return reading


def _contradicts(scale: Scale, reading: Reading, verdict: Value) -> bool:
    """Whether the word beside the score says something else."""
    if not isinstance(verdict, str):
        return isinstance(verdict, bool) and _opposes(scale, reading, verdict)
    word = verdict.strip().lower()
    if word in NA_WORDS:
        return reading.value is not None
    return (word in YES or word in NO) and _opposes(scale, reading, word in YES)


def _opposes(scale: Scale, reading: Reading, says_yes: bool) -> bool:
    return scale.kind == "binary" and reading.value is not None and reading.value != float(says_yes)


def _only_entry(scale: Scale, entries: list[Value]) -> Reading:
    if len(entries) != 1:
        return Reading.errored(Problem.WRONG_COUNT)
    return read_value(scale, entries[0])


def _is_other_maximum(scale: Scale, value: Value) -> bool:
    if isinstance(value, str) and _PLAIN.fullmatch(value.strip()):
        value = float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value != scale.max


def _says_na(value: Value) -> bool:
    return isinstance(value, str) and value.strip().lower() in NA_WORDS


def _equal(a: Value, b: Value) -> bool:
    """Equality that keeps 1 and true apart and takes NaN for itself."""
    return repr(a) == repr(b)


# --- single values -------------------------------------------------------------------------------


def _read_score(scale: Scale, value: Value) -> Reading:
    if value is None:
        return Reading.errored(Problem.NO_VERDICT)
    if isinstance(value, bool):
        return _read_bool(scale, value)
    if isinstance(value, str):
        return read_text(scale, value)
    if isinstance(value, int | float):
        return _read_number(scale, value)
    return Reading.errored(Problem.WRONG_TYPE)


def _read_bool(scale: Scale, says_yes: bool) -> Reading:
    if scale.kind != "binary":
        return Reading.errored(Problem.WRONG_TYPE)
    return Reading(State.SCORED, float(says_yes))


def _read_number(scale: Scale, value: int | float) -> Reading:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return Reading.errored(Problem.NOT_FINITE)
    if not scale.min <= number <= scale.max or (scale.kind == "binary" and number not in (0, 1)):
        return Reading.errored(Problem.OUT_OF_RANGE)
    return Reading(State.SCORED, scale.share(number) + 0.0)  # -0.0 becomes 0.0


def _on_scale(scale: Scale, number: str, maximum: float) -> Reading:
    if scale.kind == "binary" or maximum != scale.max:
        return Reading.errored(Problem.SCALE_MISMATCH)
    return _read_number(scale, float(number))


def _not_applicable(scale: Scale) -> Reading:
    return NOT_APPLICABLE if scale.allows_na else Reading.errored(Problem.NA_NOT_ALLOWED)
