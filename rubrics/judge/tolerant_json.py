"""JSON as models write it: the slips that change no meaning are allowed, and no others.

Allowed: raw line breaks and control characters in strings, a trailing comma, comments, single
quotes, `True`, `False`, `None`, numbers such as `.5`, `1.`, `+1`, unknown escapes and unpaired
surrogates in strings. `NaN` and `Infinity` are read as floats. Everything else is an error: keys
without quotes, other quotation marks, tokens that are no numbers, nesting beyond 100 levels.

Objects keep all their pairs, so that a key that stands there twice can be seen. The parser reads
one value at a place in a text and says where it ends, so that values can be found in prose.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

MAX_DEPTH = 100

_BLANK = re.compile(r"(?:[ \t\r\n\v\f]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[+-]?[A-Za-z_]+")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORDS: dict[str, bool | float | None] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
    "NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf,
}  # fmt: skip
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ENDS = frozenset(" \t\r\n\v\f,]}/")
"""What may follow a number or a word."""


@dataclass(frozen=True)
class Pairs:
    """An object as it was written."""

    items: tuple[tuple[str, Value], ...]


Value = Pairs | list["Value"] | str | int | float | bool | None


class NotJson(ValueError):
    """`at`: where reading stopped. `at_end`: the text stops inside the value, perhaps cut off."""

    def __init__(self, reason: str, at: int, *, at_end: bool = False) -> None:
        super().__init__(reason)
        self.at = at
        self.at_end = at_end


def parse(text: str) -> Value:
    """The one value that the text consists of. Raises NotJson."""
    value, end = parse_at(text, _blank(text, 0))
    if _blank(text, end) != len(text):
        raise NotJson("something follows the value", end)
    return value


def parse_at(text: str, start: int) -> tuple[Value, int]:
    """The value that begins at `start`, and the place after it. Raises NotJson."""
    return _value(text, start, 0)


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    end = match.end() if match else at
    if text.startswith("/*", end):
        raise NotJson("a comment does not end", end, at_end=True)
    return end


def _value(text: str, at: int, depth: int) -> tuple[Value, int]:
    if depth > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels", at)
    if at >= len(text):
        raise NotJson("the text ends where a value should be", at, at_end=True)
    first = text[at]
    if first == "{":
        return _object(text, at + 1, depth)
    if first == "[":
        return _list(text, at + 1, depth)
    if first in "\"'":
        return _string(text, at)
    return _scalar(text, at)


def _object(text: str, at: int, depth: int) -> tuple[Pairs, int]:
    items: list[tuple[str, Value]] = []
    while True:
        at = _blank(text, at)
        if _char(text, at) == "}":
            return Pairs(tuple(items)), at + 1
        if text[at] not in "\"'":
            raise NotJson("a key must be in quotes", at)
        key, at = _string(text, at)
        at = _blank(text, at)
        if _char(text, at) != ":":
            raise NotJson("a colon is missing", at)
        value, at = _value(text, _blank(text, at + 1), depth + 1)
        items.append((key, value))
        at = _after_item(text, at, "}")


def _list(text: str, at: int, depth: int) -> tuple[list[Value], int]:
    items: list[Value] = []
    while True:
        at = _blank(text, at)
        if _char(text, at) == "]":
            return items, at + 1
        value, at = _value(text, at, depth + 1)
        items.append(value)
        at = _after_item(text, at, "]")


def _after_item(text: str, at: int, closing: str) -> int:
    """Past a comma, or at the closing bracket."""
    at = _blank(text, at)
    found = _char(text, at)
    if found == ",":
        return at + 1
    if found == closing:
        return at
    raise NotJson(f"a comma or {closing} is missing", at)


def _char(text: str, at: int) -> str:
    if at >= len(text):
        raise NotJson("the text ends inside the value", at, at_end=True)
    return text[at]


def _string(text: str, at: int) -> tuple[str, int]:
    quote = text[at]
    at += 1
    parts: list[str] = []
    while True:
        found = _char(text, at)
        at += 1
        if found == quote:
            # Halves of one character that were written as two escapes belong together.
            joined = "".join(parts).encode("utf-16", "surrogatepass")
            return joined.decode("utf-16", "surrogatepass"), at
        if found != "\\":
            parts.append(found)
            continue
        escaped = _char(text, at)
        at += 1
        if escaped == "u" and (match := _HEX.match(text, at)):
            parts.append(chr(int(match.group(), 16)))
            at = match.end()
        else:
            parts.append(_ESCAPES.get(escaped, escaped))


def _scalar(text: str, at: int) -> tuple[Value, int]:
    if match := _NUMBER.match(text, at):
        value: Value = _number(match.group())
    elif (match := _WORD.match(text, at)) and match.group() in _WORDS:
        value = _WORDS[match.group()]
    else:
        cut = match is not None and match.end() == len(text)
        raise NotJson("neither a number nor a word of JSON", at, at_end=cut)
    end = match.end()
    if end < len(text) and text[end] not in _ENDS:
        raise NotJson("a number or word is followed by something else", end)
    return value, end


def _number(token: str) -> int | float:
    if re.fullmatch(r"[+-]?[0-9]{1,300}", token):
        return int(token)
    return float(token)  # too large becomes infinite, which a reader refuses
