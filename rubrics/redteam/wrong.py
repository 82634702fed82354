"""Answers with the key fact wrong: deterministic changes that nobody would call right.

Each gives None where there is nothing of its sort to change. Numbers change in their leading digit,
so that no sensible tolerance forgives it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_NUMBER = re.compile(r"\d[\d.,]*")
_NAME = re.compile(r"\b[^\W\d_][^\W\d_]{2,}\b")
_OPPOSITE = {
    "yes": "no",
    "no": "yes",
    "true": "false",
    "false": "true",
    "always": "never",
    "never": "always",
    "all": "none",
    "none": "all",
    "correct": "incorrect",
    "incorrect": "correct",
}
_OPPOSITES = re.compile(rf"\b({'|'.join(_OPPOSITE)})\b", re.IGNORECASE)
_VERB = re.compile(r"\b(is|are|was|were|has|have|can|will|does|did)\b", re.IGNORECASE)
_STRANGERS = ("Alder", "Birch", "Cedar")


def with_other_numbers(text: str) -> str | None:
    """42 becomes 52, 3.14 becomes 4.14, 0.05 becomes 0.06."""
    return _changed(text, _NUMBER.sub(lambda found: _other_number(found.group()), text))


def with_other_names(text: str) -> str | None:
    """The first two names change places; a single one becomes somebody else's."""
    names = list(dict.fromkeys(_names_in(text)))
    if not names:
        return None
    if len(names) == 1:
        other = next(name for name in _STRANGERS if name.casefold() != names[0].casefold())
        return _replaced(text, {names[0]: other})
    return _replaced(text, {names[0]: names[1], names[1]: names[0]})


def negated(text: str) -> str | None:
    """Yes becomes no; else the first verb is denied; else the whole."""
    if not text.strip():
        return None
    if _OPPOSITES.search(text):
        return _OPPOSITES.sub(lambda found: _like(found.group(), _OPPOSITE), text, count=1)
    if _VERB.search(text):
        return _VERB.sub(lambda found: f"{found.group()} not", text, count=1)
    return f"It is not {text.strip()}"


Change = Callable[[str], str | None]


def changed_everywhere(value: Any, change: Change) -> Any:
    """The same change in every text and number of a JSON value; keys stay."""
    if isinstance(value, str):
        return change(value) or value
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        text = change(str(value))
        return value if text is None else _number_like(value, text)
    if isinstance(value, Mapping):
        return {key: changed_everywhere(held, change) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [changed_everywhere(held, change) for held in value]
    return value


def _other_number(text: str) -> str:
    at = next((i for i, c in enumerate(text) if c.isdigit() and c != "0"), None)
    if at is None:
        at = max(i for i, c in enumerate(text) if c.isdigit())
    digit = int(text[at])
    return f"{text[:at]}{digit + 1 if digit < 9 else 8}{text[at + 1 :]}"


def _names_in(text: str) -> list[str]:
    """Words with a capital that do not begin a sentence; in a short text any word."""
    words = list(_NAME.finditer(text))
    if len(words) <= 3:
        return [w.group() for w in words if w.group().casefold() not in _OPPOSITE]
    return [
        w.group()
        for w in words
        if w.group()[0].isupper() and text[: w.start()].rstrip()[-1:] not in ("", ".", "!", "?")
    ]


def _replaced(text: str, names: Mapping[str, str]) -> str | None:
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    return _changed(text, pattern.sub(lambda found: names[found.group()], text))


def _like(word: str, table: Mapping[str, str]) -> str:
    other = table[word.lower()]
    return (
        other.upper()
        if word.isupper() and len(word) > 1
        else (other.capitalize() if word[0].isupper() else other)
    )


def _number_like(value: int | float, text: str) -> int | float:
    try:
        return type(value)(text)
    except ValueError:
        return value


def _changed(before: str, after: str) -> str | None:
    return after if after != before else None
