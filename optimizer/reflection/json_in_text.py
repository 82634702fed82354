"""The one JSON object of a reply that has a certain field, or why there is none that is certain.

Objects are found in prose, behind reasoning and in fences. Allowed slips: raw line breaks in
strings and trailing commas. Two objects that differ are no answer, and one that is broken or cut
off is none either, even if whole pieces lie inside it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Any

MAX_CHARS = 400_000
MAX_BRACKETS = 2_000
"""Brackets that are tried; a reply of nothing but brackets would take minutes."""

_REASONING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_CLOSING = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_BRACES = re.compile(r"[{}]")


class NoAnswer(ValueError):
    """The message is for whoever answered: what is wrong, and what to do."""


class _TwiceNamed(ValueError):
    """A key stands twice in one object."""


def object_with(text: str, field: str) -> dict[str, Any]:
    """Raises NoAnswer."""
    # An answer that stands first may speak of such tags; that is for the linter.
    if not text.lstrip("\ufeff \t\r\n").startswith(("{", "`")):
        text = _without_reasoning(text)
    if not text.strip():
        raise NoAnswer("the reply is empty")
    if len(text) > MAX_CHARS:
        raise NoAnswer(f"the reply is longer than {MAX_CHARS:,} characters")
    found, broken = _scan(text, field)
    if broken:
        repaired = _STRING_OR_COMMA.sub(lambda m: "" if m[0] == "," else m[0], text)
        found, broken = _scan(repaired, field)
    if broken:
        raise NoAnswer(broken)
    if not found:
        raise NoAnswer(f"the reply holds no JSON object with the field {field!r}")
    if any(other != found[0] for other in found):
        raise NoAnswer("the reply holds several answers that differ; give one")
    return found[0]


def _without_reasoning(text: str) -> str:
    rest = _REASONING.sub("", text)
    closings = list(_CLOSING.finditer(rest))
    if closings:  # templates may swallow the opening tag
        rest = rest[closings[-1].end() :]
    if _OPENING.match(rest.lstrip()):
        raise NoAnswer("the reasoning does not end: the reply was cut off")
    return rest


def _scan(text: str, field: str) -> tuple[list[dict[str, Any]], str]:
    """Outermost objects with the field, and what is wrong with one that cannot be read."""
    found: list[dict[str, Any]] = []
    name = re.compile(rf'"{re.escape(field)}"\s*:', re.IGNORECASE)
    places = [match.start() for match in name.finditer(text)]
    closings = _closings(text)
    at = tried = 0
    while (start := text.find("{", at)) >= 0:
        if (tried := tried + 1) > MAX_BRACKETS:
            return [], f"the reply has more than {MAX_BRACKETS:,} brackets that begin no object"
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            closing = closings.get(start, len(text))
            following = bisect_left(places, start)
            if following < len(places) and places[following] < closing:
                return [], _why(error, text, start, closing)
            at = start + 1
            continue
        named = {key.strip().lower(): held for key, held in value.items()}
        if field in named:
            if len(named) < len(value):
                return [], "two fields of the JSON object differ in case alone"
            found.append(named)
        at = end
    return found, ""


def _why(error: Exception, text: str, start: int, closing: int) -> str:
    if isinstance(error, _TwiceNamed):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        # A string that does not end is told at its beginning.
        unended = error.msg.startswith("Unterminated string")
        if closing >= len(text) and (unended or error.pos >= len(text.rstrip()) - 1):
            return "the reply is cut off inside its JSON object; answer with fewer or shorter edits"
        return f"the JSON object cannot be read: {error.msg}, at character {error.pos - start}"
    return "the JSON object cannot be read: it is nested too deeply"


def _closings(text: str) -> dict[int, int]:
    """Where each bracket closes, whatever is quoted; those that never do are left out."""
    found: dict[int, int] = {}
    open_ones: list[int] = []
    for match in _BRACES.finditer(text):
        if match[0] == "{":
            open_ones.append(match.start())
        elif open_ones:
            found[open_ones.pop()] = match.end()
    return found


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        names = [name for name, _ in items]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceNamed(f"the field {twice!r} stands twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_pairs, parse_constant=_constant)
