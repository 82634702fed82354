"""Bodies of JSON, refused where either database or the answer could not give them back.

PostgreSQL takes no NUL in text, neither takes a lone surrogate, and a number beyond the range of
floats is read as infinity, which is no JSON. Such values, and values nested so deep that writing
them would fail, are a fault of the request (400) and no fault of ours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

DEEPEST = 64
"""Levels of lists and objects."""
_RARE = re.compile(r"\\u0000|\\ud[89a-f]", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")


class StorableJson(JSONParser):
    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            text = stream.read().decode("utf-8")
            value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except RecursionError:
            raise ParseError(f"The JSON is nested deeper than {DEEPEST} levels.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from error
        _check(value, has_rare=_RARE.search(text) is not None)
        return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is beyond the range of numbers")
    return value


def _check(value: Any, *, has_rare: bool) -> None:
    """Level by level. `has_rare`: single texts must be looked at."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ParseError(f"The JSON is nested deeper than {DEEPEST} levels.")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
                if has_rare:
                    below += item
            elif isinstance(item, list):
                below += item
            elif has_rare and isinstance(item, str) and ("\x00" in item or _SURROGATE.search(item)):
                raise ParseError(
                    "A text holds a NUL character or half a surrogate pair, which cannot be stored;"
                    " leave it out."
                )
        level = below
