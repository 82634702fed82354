"""From what an author wrote to a field's value, and back to text for a form or a cell.

A value comes as text (a form, a CSV cell) or as JSON (a line of a JSONL file). Both ways end in the
same stored value. Everything that does not fit is a `ValueError` whose text goes on after the
field's name: "must be a number, not 'much'".
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from orchestrator.environments.kinds.fields import Field

MAX_TEXT_CHARS = 131_072
"""Of one text. What is longer belongs into files of a task, each up to this."""
MAX_VALUE_BYTES = 1_048_576
"""Of one JSON value, as text."""
TEXT_TYPES = ("text", "long_text", "sql", "python", "shell")
_LINE_END = re.compile(r"\r\n|\n|\r")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def from_text(field: Field, text: str) -> Any:
    """The value of a text that is not blank."""
    if field.type in TEXT_TYPES:
        return checked_text(text)
    if field.type == "text_list":
        return _text_list(text)
    if field.type in ("json", "files"):
        return _shaped(field, parse_json(text))
    return _shaped(field, text.strip())


def from_json(field: Field, value: Any) -> Any:
    """The value of something that came out of JSON and is not null."""
    if field.type in TEXT_TYPES:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = json.dumps(value)
        if not isinstance(value, str):
            raise ValueError(f"must be text, not {_named(value)}")
        return checked_text(value)
    if field.type == "text_list" and isinstance(value, str | int | float):
        return [from_json(Field(field.name, field.label), value)]
    check_json(value)
    return _shaped(field, value)


def to_text(field: Field, value: Any) -> str:
    """What `from_text` reads as `value`; empty for None."""
    if value is None:
        return ""
    if field.type == "flag":
        return "true" if value else "false"
    if field.type == "text_list" and isinstance(value, list):
        lines = [item for item in value if isinstance(item, str)]
        plain = len(lines) == len(value) and all(
            item.strip() == item and item and "\n" not in item and "\r" not in item
            for item in lines
        )
        if plain and lines and not lines[0].startswith("["):
            return "\n".join(lines)
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and field.type not in ("json", "files"):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if field.type == "json" else None)


def is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def checked_text(text: str) -> str:
    """`ValueError` for what a database or a page could not keep as it is."""
    if "\x00" in text:
        raise ValueError("contains a NUL character; remove it")
    if found := _SURROGATE.search(text):
        # What is left of a byte that was no UTF-8: see `records.decoded`.
        if "\udc80" <= found.group() <= "\udcff":
            raise ValueError("is not UTF-8 text; save the file with the encoding UTF-8")
        raise ValueError("contains half of a character (a lone surrogate); remove it")
    if len(text) > MAX_TEXT_CHARS:
        raise ValueError(f"has {len(text):,} characters; the limit of a text is {MAX_TEXT_CHARS:,}")
    return text


def parse_json(text: str) -> Any:
    """The JSON value of a text: finite numbers, no key twice, bounded in size and depth."""
    if len(text) > MAX_VALUE_BYTES:
        raise ValueError(f"has {len(text):,} characters; the limit is {MAX_VALUE_BYTES:,}")
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as exc:
        raise ValueError(f"is not JSON: {exc.msg} (line {exc.lineno}, column {exc.colno})") from exc
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc
    check_json(value)
    return value


def check_json(value: Any, depth: int = 0) -> None:
    """`ValueError` for numbers and texts in `value` that cannot be stored."""
    if depth > 50:
        raise ValueError("is nested more than 50 levels deep")
    if isinstance(value, str):
        checked_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("contains a number that is not finite")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        raise ValueError("contains a whole number of more than 63 bits; write it as text")
    elif isinstance(value, list):
        for item in value:
            check_json(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            checked_text(key)
            check_json(item, depth + 1)


def whole_number(value: Any) -> int:
    """Of `4`, `"4"` or `4.0`."""
    if isinstance(value, str):
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            raise ValueError(f"must be a whole number, not {_named(value)}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a whole number, not {_named(value)}")
    if not math.isfinite(value) or value != int(value):
        raise ValueError(f"must be a whole number, not {_named(value)}")
    if abs(value) >= 2**63:
        raise ValueError("must be below 2 to the power of 63")
    return int(value)


def number(value: Any) -> float:
    """A finite number, whole ones kept whole."""
    if isinstance(value, str):
        try:
            value = int(value) if value.lstrip("+-").isdecimal() else float(value)
        except ValueError:
            raise ValueError(f"must be a number, not {_named(value)}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {_named(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    if abs(value) >= 2**63:
        raise ValueError("must be below 2 to the power of 63")
    return value


def _shaped(field: Field, value: Any) -> Any:
    match field.type:
        case "integer":
            return whole_number(value)
        case "number":
            return number(value)
        case "flag":
            return _flag(value)
        case "choice":
            return _choice(field, value)
        case "text_list":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ValueError("must be a list of texts")
            return value
        case "files":
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise ValueError('must be a JSON object from path to text: {"notes.txt": "…"}')
            return value
        case _:
            return value


def _flag(value: Any) -> bool:
    word = str(value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"must be true or false, not {_named(value)}")


def _choice(field: Field, value: Any) -> str:
    wanted = str(value).strip().casefold()
    for choice, label in field.choices:
        if wanted in (choice.casefold(), label.casefold()):
            return choice
    known = ", ".join(choice for choice, _ in field.choices)
    raise ValueError(f"is {_named(value)}; use one of: {known}")


def _text_list(text: str) -> list[str]:
    """A JSON list, or one text a line."""
    if text.lstrip().startswith("["):
        value = parse_json(text)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("must be a JSON list of texts, or one text a line")
        return value
    # Not `splitlines`, which breaks at control characters that belong to a text.
    return [line.strip() for line in _LINE_END.split(checked_text(text)) if line.strip()]


def _named(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else text[:39] + "…"


def _refuse_constant(name: str) -> object:
    raise ValueError(f"contains {name}, which is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value] # adds
        raise ValueError(f"names {_named(twice)} twice in one object")
    return value
