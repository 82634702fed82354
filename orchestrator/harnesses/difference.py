"""What differs between two harnesses, component by component, line by line, word by word. Pure.

Demonstrations are compared as conversations and not as lines of JSON, so that a turn more is a line
more. Of a changed line the words that differ are marked; a line that has hardly anything in common
with the one it replaces is shown as a whole.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from optimizer.errors import HarnessInvalid
from optimizer.harness import CONFIG, DEMONSTRATIONS, INSTRUCTIONS, TOOLS, parse_demonstrations

Kind = Literal["same", "gone", "new", "gap"]
Piece = tuple[bool, str]
"""Whether it differs from the line's partner, and its text."""
CONTEXT = 3
"""Lines shown around a change."""
MAX_LINES = 2_000
"""Longer texts are shown as replaced: comparing takes time with the square of what differs."""
MAX_LINE_CHARS = 4_000
"""In longer lines no words are compared."""
ALIKE = 0.4
"""Share of common words from which two lines are versions of one; below it all would be marked."""
_WORD = re.compile(r"\w+|[^\w\s]|\s+")


@dataclass(frozen=True)
class Line:
    kind: Kind
    pieces: Sequence[Piece]
    before: int | None = None
    """Its number in the old text."""
    after: int | None = None
    n_hidden: int = 0
    """Of a gap: how many equal lines are left out."""

    @property
    def mark(self) -> str:
        return {"same": " ", "gone": "−", "new": "+", "gap": "⋯"}[self.kind]


@dataclass(frozen=True)
class ComponentDifference:
    path: str
    change: Literal["added", "removed", "changed"]
    lines: Sequence[Line]

    @property
    def n_new(self) -> int:
        return sum(line.kind == "new" for line in self.lines)

    @property
    def n_gone(self) -> int:
        return sum(line.kind == "gone" for line in self.lines)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[ComponentDifference]:
    """Of two harnesses' components, in the order in which people read a harness."""
    found = []
    for path in sorted(before.keys() | after.keys(), key=order):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        lines = compared(readable(path, old or ""), readable(path, new or ""))
        if old is None:
            found.append(ComponentDifference(path, "added", lines))
        elif new is None:
            found.append(ComponentDifference(path, "removed", lines))
        else:
            found.append(ComponentDifference(path, "changed", lines))
    return found


def order(path: str) -> tuple[int, str]:
    """Instructions, skills, demonstrations, tools, then the configuration."""
    first = {INSTRUCTIONS: 0, DEMONSTRATIONS: 2, TOOLS: 3, CONFIG: 4}
    return first.get(path, 1), path


def readable(path: str, text: str) -> str:
    """The text as it is compared."""
    if path != DEMONSTRATIONS:
        return text
    try:
        shown = parse_demonstrations(text)
    except HarnessInvalid:
        return text
    blocks = []
    for item in shown:
        of = f" (of {item.source})" if item.source else ""
        turns = [f"{message['role']}: {message['content']}" for message in item.messages]
        blocks.append("\n".join([f"# {item.id}{of}", *turns]))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def compared(before: str, after: str) -> list[Line]:
    """All changed lines with their neighbours; what lies between is a gap."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) > MAX_LINES or len(new) > MAX_LINES:
        return [*_gone(old, 0), *_new(new, 0)]
    lines = list(_lines(old, new))
    changed = [i for i, line in enumerate(lines) if line.kind != "same"]
    if changed:
        return _folded(lines, changed)
    # At the end of the file, or by another sign.
    return [] if before == after else [Line("gap", [(False, "only line ends differ")])]


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            for offset in range(j - i):
                yield Line("same", [(False, old[i + offset])], i + offset + 1, k + offset + 1)
        else:
            yield from _replaced(old[i:j], new[k:m], i, k)


def _replaced(old: Sequence[str], new: Sequence[str], i: int, k: int) -> Iterator[Line]:
    """Lines at the same place in their blocks are partners."""
    gone, came = list(_gone(old, i)), list(_new(new, k))
    for at, (one, two) in enumerate(zip(old, new, strict=False)):
        marked = words(one, two)
        if marked is not None:
            gone[at] = Line("gone", marked[0], before=i + at + 1)
            came[at] = Line("new", marked[1], after=k + at + 1)
    yield from gone
    yield from came


def _gone(lines: Sequence[str], start: int) -> Iterator[Line]:
    for at, text in enumerate(lines):
        yield Line("gone", [(False, text)], before=start + at + 1)


def _new(lines: Sequence[str], start: int) -> Iterator[Line]:
    for at, text in enumerate(lines):
        yield Line("new", [(False, text)], after=start + at + 1)


def words(before: str, after: str) -> tuple[list[Piece], list[Piece]] | None:
    """Both lines in pieces, those that differ marked; None for lines that have little in common.

    Joined, the pieces are the lines.
    """
    if max(len(before), len(after)) > MAX_LINE_CHARS:
        return None
    one, two = _WORD.findall(before), _WORD.findall(after)
    if _likeness(one, two) < ALIKE:
        return None
    matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
    old: list[Piece] = []
    new: list[Piece] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        differs = tag != "equal"
        if j > i:
            old.append((differs, "".join(one[i:j])))
        if m > k:
            new.append((differs, "".join(two[k:m])))
    return old, new


def _likeness(one: Sequence[str], two: Sequence[str]) -> float:
    """0 to 1, by what is no space."""
    before, after = ([word for word in words if not word.isspace()] for words in (one, two))
    return difflib.SequenceMatcher(None, before, after, autojunk=False).ratio()


def _folded(lines: Sequence[Line], changed: Sequence[int]) -> list[Line]:
    near = {
        at for i in changed for at in range(max(0, i - CONTEXT), min(len(lines), i + CONTEXT + 1))
    }
    # A gap of one line would take as much room as the line.
    shown = near | {-1, len(lines)}
    near |= {at for at in range(len(lines)) if at - 1 in shown and at + 1 in shown}
    found: list[Line] = []
    hidden = 0
    for at, line in enumerate(lines):
        if at not in near:
            hidden += 1
            continue
        if hidden:
            found.append(_gap(hidden))
            hidden = 0
        found.append(line)
    return [*found, _gap(hidden)] if hidden and found else found


def _gap(n: int) -> Line:
    return Line("gap", [(False, f"{n} equal line{'' if n == 1 else 's'}")], n_hidden=n)
