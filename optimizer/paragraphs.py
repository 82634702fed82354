"""Texts as paragraphs: what edits of instructions and of skill bodies act on.

A paragraph is a block between blank lines. Blank lines inside a fenced code block belong to it, so
no edit can cut a fence. An author can protect a part by two comments on lines of their own:

    <!-- protected -->
    Never delete a customer's data.
    <!-- /protected -->

No edit may change what stands between them (`optimizer.lint`), and the model is told the text
without the comments (`unmarked`).
"""

from __future__ import annotations

import re

from optimizer.canonical import unix_lines

OPEN, CLOSE = "<!-- protected -->", "<!-- /protected -->"
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MARK = re.compile(r"[ \t]*<!--[ \t]*(/?)protected[ \t]*-->[ \t]*")


def paragraphs(text: str) -> list[str]:
    """The blocks of a text, without the blank lines around them."""
    lines = [line.rstrip() for line in unix_lines(text).split("\n")]
    blocks: list[list[str]] = [[]]
    at = 0
    while at < len(lines):
        end = _end_of_fence(lines, at)
        if end is not None:
            blocks[-1] += lines[at : end + 1]
            at = end
        elif lines[at]:
            blocks[-1].append(lines[at])
        elif blocks[-1]:
            blocks.append([])
        at += 1
    return ["\n".join(block) for block in blocks if block]


def joined(blocks: list[str]) -> str:
    """The text of paragraphs; `paragraphs` gives them back if each is one."""
    return "\n\n".join(blocks) + "\n" if blocks else ""


def tidy(text: str) -> str:
    """The one text with these paragraphs."""
    return joined(paragraphs(text))


def protected_parts(text: str) -> list[str]:
    """What stands between the marks, in order; a part without its end goes on to the end."""
    parts, rest = _parts(text)
    return parts if rest is None else [*parts, rest]


def has_unclosed_part(text: str) -> bool:
    return _parts(text)[1] is not None


def _parts(text: str) -> tuple[list[str], str | None]:
    """The parts with an end, and the one without."""
    parts: list[str] = []
    inside: list[str] | None = None
    for line in unix_lines(text).split("\n"):
        mark = _MARK.fullmatch(line)
        if mark is None:
            if inside is not None:
                inside.append(line)
        elif not mark[1]:
            inside = [] if inside is None else inside
        elif inside is not None:
            parts.append(tidy("\n".join(inside)))
            inside = None
    return parts, None if inside is None else tidy("\n".join(inside))


def has_marks(text: str) -> bool:
    return any(_MARK.fullmatch(line) for line in unix_lines(text).split("\n"))


def unmarked(text: str) -> str:
    """The text as the model is told it; untouched where there are no marks."""
    if "protected" not in text or not has_marks(text):
        return text
    lines = [line for line in unix_lines(text).split("\n") if not _MARK.fullmatch(line)]
    return "\n".join(lines)


def _end_of_fence(lines: list[str], at: int) -> int | None:
    """Line on which a fence that opens at this one ends; None if none opens, or it stays open."""
    opening = FENCE.match(lines[at])
    if opening is None:
        return None
    mark = opening[1]
    for end in range(at + 1, len(lines)):
        closing = FENCE.fullmatch(lines[end])
        if closing and closing[1][0] == mark[0] and len(closing[1]) >= len(mark):
            return end
    return None
