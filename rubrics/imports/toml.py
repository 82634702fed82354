"""TOML text of plain tables. Python reads TOML and does not write it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


def written(document: Mapping[str, Any]) -> str:
    """Values first, then tables, then lists of tables, one level deep; inline below that.

    Raises ValueError for what TOML has no form for: null, NaN, unpaired surrogates.
    """
    plain = {k: v for k, v in document.items() if not _is_table(v) and not _is_tables(v)}
    parts = [_lines(plain)] if plain else []
    for name, value in document.items():
        if _is_table(value):
            parts.append(f"[{_key(name)}]\n{_lines(value)}")
        elif _is_tables(value):
            parts += [f"[[{_key(name)}]]\n{_lines(item)}" for item in value]
    return "\n".join(parts)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise ValueError(f"TOML has no form for {value!r:.60}")


def _text(value: str) -> str:
    # JSON's escapes are TOML's as well; it leaves DEL alone, which TOML refuses.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("TOML has no form for an unpaired surrogate") from None
    return text


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else _text(name)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_table(item) for item in value)
