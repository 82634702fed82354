"""One text for one value: YAML and JSON that read back as what was written, lines that end one way.

What comes in may be any text that a model or a file can hold. Here it is told from what cannot be
kept: half of a character pair cannot be encoded, and PostgreSQL keeps no NUL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

import yaml

LINE_END = re.compile(r"\r+\n")
MAX_YAML_CHARS, MAX_YAML_BRACKETS = 50_000, 500
"""PyYAML's time grows with the square of open brackets: 5,000 of them take seconds."""
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def unix_lines(text: str) -> str:
    """Lines that end with a line feed alone; the same for a text that has been through it.

    A carriage return by itself is content.
    """
    return LINE_END.sub("\n", text)


def unstorable(text: str) -> str:
    """Why the text cannot be stored; empty if it can be."""
    found = UNSTORABLE.search(text)
    if found is None:
        return ""
    what = "a NUL character" if found[0] == "\0" else "half of a character pair"
    return f"{what} at position {found.start()}"


def read_json(text: str) -> Any:
    """The value of a text in JSON; ValueError for NaN and for what cannot be stored too."""
    try:
        return _storable(json.loads(text, parse_constant=_refuse))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_yaml(text: str) -> Any:
    """The value of a text in YAML; ValueError for whatever cannot be read."""
    if len(text) > MAX_YAML_CHARS:
        raise ValueError(f"above {MAX_YAML_CHARS:,} characters")
    if text.count("[") + text.count("{") > MAX_YAML_BRACKETS:
        raise ValueError(f"above {MAX_YAML_BRACKETS} brackets")
    try:
        return _storable(yaml.safe_load(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def yaml_text(values: Mapping[str, Any]) -> str:
    """YAML in the order of the fields, with letters of all scripts where that is safe.

    PyYAML writes some characters (for instance U+0085) plainly and then reads them as line ends.
    Such values are written in ASCII with escapes.
    """
    return _yaml_text(json.dumps(dict(values)))


@lru_cache(maxsize=1_000)  # a search writes thousands of harnesses whose harness.yaml is the same
def _yaml_text(key: str) -> str:
    values = json.loads(key)
    readable = _dump(values, allow_unicode=True)
    try:
        if yaml.safe_load(readable) == values:
            return readable
    except yaml.YAMLError:  # a character that YAML does not allow unescaped
        pass
    return _dump(values, allow_unicode=False)


def _dump(values: Any, *, allow_unicode: bool) -> str:
    text: str = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=allow_unicode, width=1_000_000
    )
    return text


def _storable(value: Any) -> Any:
    """The value itself; escapes (`\\ud83d`) may have made of a fine text what cannot be kept."""
    todo = [value]
    seen: set[int] = set()  # YAML can refer to a value from inside of it
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            if problem := unstorable(item):
                raise ValueError(f"a text has {problem}")
        elif isinstance(item, dict | list) and id(item) not in seen:
            seen.add(id(item))
            todo += [*item.keys(), *item.values()] if isinstance(item, dict) else item
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
