"""What an event says, as words for the full-text index, and queries in the same words. Pure.

Both databases get words that were cut here, so that a search finds the same on SQLite and on
PostgreSQL. A word is a run of letters, marks and digits of any script, letter case folded; `_` and
punctuation divide, and so does every character of a script that is written without spaces. Terminal
escapes and the bytes of pictures are no words: search finds what is shown.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

INDEXED_KINDS = frozenset(
    {
        "rollout.started",
        "told",
        "skill.loaded",
        "action",
        "observation",
        "verdict",
        "final_state",
        "rollout.ended",
        "outside",
    }
)
"""Kinds of events that carry something to read; the others are counts and states."""
HEAD_CHARS, TAIL_CHARS = 1_000_000, 50_000
"""Of a longer text only its beginning and its end are indexed."""
LONGEST_WORD = 100
"""A longer word is found by its beginning."""

_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]{0,4096}(?:\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_BASE64 = re.compile(r";base64,[A-Za-z0-9+/=_-]*(?:\s+[A-Za-z0-9+/=_-]{60,})*")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_MARKS = "".join(
    chr(code)
    for code in range(0x300, 0x10000)
    if unicodedata.category(chr(code)) in ("Mn", "Mc", "Me")
)
_UNSPACED_ONE = f"[{_UNSPACED}][\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*"
_WORD = re.compile(f"{_UNSPACED_ONE}|(?:(?![{_UNSPACED}])[^\\W_]|[{_MARKS}])+")
_WORD_ASCII = re.compile("[a-z0-9]+")


def words_of(text: str) -> list[str]:
    """The words in order."""
    if "\x1b" in text or not text.isascii():
        text = _SEQUENCE.sub("", text)
    if ";base64," in text:
        text = _BASE64.sub(" ", text)
    text = text.casefold()
    found = (_WORD_ASCII if text.isascii() else _WORD).findall(text)
    if len(text) < LONGEST_WORD:
        return found
    return [word[:LONGEST_WORD] for word in found]


def event_words(kind: str, payload: Any) -> list[str]:
    """Words of an event; none for a kind that is not indexed."""
    if kind not in INDEXED_KINDS:
        return []
    if kind == "outside" and isinstance(payload, Mapping):
        payload = _pairs(json.loads(payload.get("body") or "null"))
    return [word for text in _texts(payload) for word in words_of(_shortened(text))]


def _pairs(value: Any) -> list[Any]:
    """Keys too: of an event from outside they are shown."""
    found: list[Any] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(part for pair in reversed(item.items()) for part in reversed(pair))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        else:
            found.append(item)
    return found


def _shortened(text: str) -> str:
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]} {text[-TAIL_CHARS:]}"


def _texts(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, list | tuple):
            stack.extend(reversed(item))
        elif item is not None and not isinstance(item, bool):
            yield json.dumps(item)


@dataclass(frozen=True)
class Phrase:
    """Words that follow one another; of the last one only the beginning if `is_prefix`."""

    words: tuple[str, ...]
    is_prefix: bool = False


_QUOTED = re.compile(r'"([^"]*)"?(\*?)|(\S+)')


def phrases_of(query: str) -> list[Phrase]:
    """`red "two words" be*`: all of them must occur; a query without a word gives none.

    A chunk that holds several words by the rule above (`foo_bar.txt`) is a phrase.
    """
    phrases = []
    for match in _QUOTED.finditer(query):
        chunk = match[1] if match[1] is not None else match[3]
        is_prefix = bool(match[2]) or (match[3] is not None and chunk.endswith("*"))
        if words := words_of(chunk):
            phrases.append(Phrase(tuple(words), is_prefix))
    return phrases


# Forms of the databases


def fts5_query(phrases: list[Phrase], scope: str) -> str:
    """A MATCH expression of SQLite's FTS5. Words hold no quote: there is nothing to escape."""
    parts = [f'"{" ".join(p.words)}"{" *" if p.is_prefix else ""}' for p in phrases]
    return f'scope : "{scope}" AND words : ({" AND ".join(parts)})'


def tsquery(phrases: list[Phrase], scope: str) -> str:
    """A tsquery of PostgreSQL."""
    parts = [
        "("
        + " <-> ".join(f"'{word}'" for word in p.words[:-1])
        + (" <-> " if len(p.words) > 1 else "")
        + f"'{p.words[-1]}'{':*' if p.is_prefix else ''})"
        for p in phrases
    ]
    return " & ".join([f"'#{scope}'", *parts])


_TSVECTOR_BYTES = 700_000
_POSITIONS = 255
_LAST_POSITION = 16_383


def tsvector(words: list[str], scopes: list[str]) -> str:
    """A tsvector of PostgreSQL, inside its limits: 1 MiB, 255 places of a word, 16,383 places."""
    places: dict[str, list[int]] = {}
    size = 0
    for position, word in enumerate(words, start=1):
        found = places.get(word)
        if found is None:
            size += 8 + 4 * len(word)
            if size > _TSVECTOR_BYTES:
                break
            found = places[word] = []
        if len(found) < _POSITIONS and position <= _LAST_POSITION:
            found.append(position)
            size += 2
    parts = [
        f"'{word}':{','.join(map(str, found))}" if found else f"'{word}'"
        for word, found in places.items()
    ]
    return " ".join([*(f"'#{scope}'" for scope in scopes), *parts])
