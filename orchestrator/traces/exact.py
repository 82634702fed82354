"""JSON that comes out as it went in: digits of numbers, code units of strings. Pure.

Numbers are kept as they were written. What is stored and sent is ASCII, so that NUL and unpaired
surrogates pass every database and every wire. Numbers that are not finite are sent in the form
`{"$number": "NaN"}`, which strict readers accept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

DEEPEST = 500
"""Levels of objects and lists in one item."""


@dataclass(frozen=True)
class Number:
    token: str
    """As it was written."""

    @property
    def is_finite(self) -> bool:
        return self.token.lstrip("-").isdecimal() or math.isfinite(float(self.token))


class TooDeep(Exception):
    """More than `DEEPEST` levels."""


def parse(text: str) -> Any:
    """Numbers become `Number`. Raises ValueError for what is no JSON, TooDeep."""
    if is_deep(text):
        raise TooDeep
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)


def is_deep(text: str, levels: int = DEEPEST) -> bool:
    """Whether a text of JSON nests deeper than so many levels."""
    return text.count("{") + text.count("[") > levels and _depth(text) > levels


_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        sign = match.group()
        if sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest


def dump(value: Any, shorten: Callable[[str], str] | None = None) -> str:
    """Strict JSON in ASCII; `shorten` may change strings that are values."""
    parts: list[str] = []
    _write(value, parts, shorten)
    return "".join(parts)


def _write(value: Any, parts: list[str], shorten: Callable[[str], str] | None) -> None:
    if isinstance(value, str):
        parts.append(encode_basestring_ascii(shorten(value) if shorten else value))
    elif isinstance(value, Number):
        parts.append(value.token if value.is_finite else f'{{"$number": "{value.token}"}}')
    elif isinstance(value, dict):
        sign = "{"
        for key, part in value.items():
            parts.append(f"{sign}{encode_basestring_ascii(key)}: ")
            _write(part, parts, shorten)
            sign = ", "
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        sign = "["
        for part in value:
            parts.append(sign)
            _write(part, parts, shorten)
            sign = ", "
        parts.append("]" if value else "[]")
    else:
        parts.append(json.dumps(value))


def leaves(value: Any) -> Iterator[Any]:
    """Keys and values, in order, without objects and lists."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(part for pair in reversed(item.items()) for part in reversed(pair))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        else:
            yield item
