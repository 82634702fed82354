"""Reading what a judge replied: one verdict that it certainly gave, or why there is none.

A wrong 1 is a reward that training will learn to get, an errored verdict costs a retry. So neither
the first nor the last number wins: a verdict in a longer text counts only if it stands apart from
it, and if there is no other one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rubrics.judge.scale import Problem, Reading, Scale
from rubrics.judge.tolerant_json import NotJson, Value, parse, parse_at
from rubrics.judge.value import (
    WORDS,
    has_verdict_key,
    is_digit,
    is_value_text,
    read_text,
    read_value,
)

MAX_WASTED_CHARS = 500_000
"""Characters read in vain; brackets within brackets that never close would take a minute else."""

_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u180e\u00ad"
_ENDS = "".join(chr(c) for c in range(33)) + "\x7f\x85\xa0\u2028\u2029" + _INVISIBLE
_TURN_END = re.compile(r"(?:<\|[^<>|]{0,40}\|>|</s>)\Z")
_REASONING = re.compile(r"<(think|thinking)>.*?</(?:think|thinking)>", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"<(?:think|thinking)>", re.IGNORECASE)
_CLOSING = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)
_FENCED = re.compile(r"(`{3,}|~{3,})[^\n`]*\n(.*?)\n?[ \t]*\1`*[ \t]*", re.DOTALL)
_FENCE_LINE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[^\n`]*")
_LABEL = re.compile(r"(?:(?:final|overall)\s+)?(?:score|verdict)\s*[:=]\s*(.*)", re.IGNORECASE)
_QUOTE = r"""(?:["'“”„‘’«»`]|&quot;|&\#0*34;|&\#x0*22;|\\")?"""
_BROKEN_KEY = re.compile(
    rf"[{{,]\s*{_QUOTE}\s*(?:score|verdict|not_applicable)\s*{_QUOTE}\s*:", re.IGNORECASE
)
_SIGNS = "+-\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d\uff0b"
_POINTS = ".,\u066b\uff0e\uff0c"


def read_reply(scale: Scale, reply: str | None) -> Reading:
    """The verdict of one criterion. Never raises, whatever a model wrote."""
    text = _cleaned(reply or "")
    if not text:
        return Reading.errored(Problem.EMPTY)
    if (reading := _whole(scale, text)) is not None:
        return reading
    rest = _without_reasoning(text)
    if isinstance(rest, Problem):
        return Reading.errored(rest)
    if rest != text and (reading := _whole(scale, rest)) is not None:
        return reading
    if (match := _FENCED.fullmatch(rest)) and not _has_fence(match.group(2)):
        rest = _cleaned(match.group(2))
        if not rest:
            return Reading.errored(Problem.NO_VERDICT)
        if (reading := _whole(scale, rest)) is not None:
            return reading
    return _read_prose(scale, rest)


def only_value(reply: str | None) -> Value | Problem:
    """The one JSON value that a reply consists of, behind reasoning or in a fence, or why not."""
    text = _cleaned(reply or "")
    rest: str | Problem = text
    if text and not text.startswith(("{", "[")):
        rest = _without_reasoning(text)
    if isinstance(rest, Problem) or not rest:
        return rest or Problem.EMPTY
    if (match := _FENCED.fullmatch(rest)) and not _has_fence(match.group(2)):
        rest = _cleaned(match.group(2))
    try:
        return parse(rest)
    except NotJson as exc:
        if not rest.startswith(("{", "[")):
            return Problem.NO_VERDICT
        return Problem.TRUNCATED if exc.at_end else Problem.MALFORMED


# --- the text as a whole -------------------------------------------------------------------------


def _cleaned(text: str) -> str:
    while True:
        text = text.strip(_ENDS)
        if not (match := _TURN_END.search(text)):
            return text
        text = text[: match.start()]


def _whole(scale: Scale, text: str) -> Reading | None:
    try:
        return read_value(scale, parse(text))
    except NotJson:
        return None


def _without_reasoning(text: str) -> str | Problem:
    rest = _REASONING.sub("", text)
    if _OPENING.search(rest):
        return Problem.TRUNCATED
    closings = list(_CLOSING.finditer(rest))
    if closings:
        before, rest = rest[: closings[-1].start()], rest[closings[-1].end() :]
        found = _find(before)
        if found.verdicts or found.broken:
            return Problem.AMBIGUOUS
    return _cleaned(rest) or Problem.EMPTY


def _has_fence(text: str) -> bool:
    return any(_FENCE_LINE.fullmatch(line) for line in text.splitlines())


# --- verdicts inside a text ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A verdict and where it stands."""

    start: int
    end: int
    value: Value
    is_label: bool


@dataclass(frozen=True)
class _Finds:
    verdicts: tuple[_Found, ...]
    broken: Problem | None


def _read_prose(scale: Scale, text: str) -> Reading:
    found = _find(text)
    if found.broken:
        return Reading.errored(found.broken)
    if not found.verdicts:
        return _read_line(scale, text)
    objects = [verdict.value for verdict in found.verdicts if not verdict.is_label]
    readings = {_read_found(scale, verdict) for verdict in found.verdicts}
    if len({repr(value) for value in objects}) > 1 or len(readings) > 1:
        return Reading.errored(Problem.AMBIGUOUS)
    if not any(_stands_alone(text, verdict) for verdict in found.verdicts):
        return Reading.errored(Problem.AMBIGUOUS)
    return readings.pop()


def _read_found(scale: Scale, found: _Found) -> Reading:
    if found.is_label:
        return read_text(scale, str(found.value))
    return read_value(scale, found.value)


def _read_line(scale: Scale, text: str) -> Reading:
    """A text without a verdict: it may be a value and nothing else."""
    bare = text.strip("*_` \t")
    if "\n" not in bare and is_value_text(bare):
        return read_text(scale, bare)
    if "\n" not in bare and _begins_like_number(bare) and not re.search(r"\s[^\W\d_]", bare):
        return Reading.errored(Problem.NUMBER_FORMAT)
    return Reading.errored(Problem.NO_VERDICT)


def _find(text: str) -> _Finds:
    """All verdicts of a text: outermost JSON values that are one, and label lines."""
    verdicts: list[_Found] = []
    spans: list[tuple[int, int]] = []
    broken: Problem | None = None
    at = wasted = 0
    while (start := _next_bracket(text, at)) is not None:
        try:
            value, end = parse_at(text, start)
        except NotJson as exc:
            closing = _closing(text, start) if text[start] == "{" else start
            wasted += max(exc.at, closing) - start
            if wasted > MAX_WASTED_CHARS:
                return _Finds((), Problem.MALFORMED)
            if _BROKEN_KEY.search(text, start, closing):
                broken = broken or (Problem.TRUNCATED if exc.at_end else Problem.MALFORMED)
            at = start + 1
            continue
        is_list = isinstance(value, list) and bool(value) and all(map(has_verdict_key, value))
        if is_list or has_verdict_key(value):
            verdicts.append(_Found(start, end, value, is_label=False))
        spans.append((start, end))
        at = end
    verdicts += _label_lines(text, spans)
    return _Finds(tuple(verdicts), broken)


def _next_bracket(text: str, at: int) -> int | None:
    found = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(found) if found else None


def _closing(text: str, start: int) -> int:
    """Where the bracket at `start` closes, quotation marks not looked at; else the text's end."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


def _label_lines(text: str, spans: list[tuple[int, int]]) -> list[_Found]:
    found = []
    for match in re.compile(r"[^\n\r]+").finditer(text):
        start, end = match.span()
        if any(a < end and start < b for a, b in spans):
            continue
        line = re.sub(r"[#*_]", "", match.group()).strip()
        label = _LABEL.fullmatch(line)
        if label and _is_label_value(label.group(1)):
            found.append(_Found(start, end, label.group(1), is_label=True))
    return found


def _is_label_value(text: str) -> bool:
    return text.strip().lower() in WORDS or _begins_like_number(text)


def _begins_like_number(text: str) -> bool:
    """A sign or a point, if any, then a digit of any script."""
    text = text.strip()
    if text[:1] and text[0] in _SIGNS:
        text = text[1:].lstrip()
    if text[:1] and text[0] in _POINTS:
        text = text[1:]
    return bool(text) and is_digit(text[0])


def _stands_alone(text: str, found: _Found) -> bool:
    """Nothing else on its lines but a label, and nothing but fences before it or after it."""
    line_start = text.rfind("\n", 0, found.start) + 1
    lead = re.sub(r"[#*_]", "", text[line_start : found.start]).strip()
    label = _LABEL.fullmatch(lead)
    if lead and not (label and not label.group(1).strip()):
        return False
    line_end = text.find("\n", found.end)
    line_end = len(text) if line_end < 0 else line_end
    if text[found.end : line_end].strip():
        return False
    return _is_only_fences(text[:line_start]) or _is_only_fences(text[line_end:])


def _is_only_fences(text: str) -> bool:
    return all(not line.strip() or _FENCE_LINE.fullmatch(line) for line in text.splitlines())
