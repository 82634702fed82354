"""The "reflection model" that all engines share, so that searches are compared and not writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

LIMIT = 2
"""Lessons that one proposal adds at most."""


def ranked(document: str, lessons: Iterable[str], *, banned: Collection[str] = ()) -> list[str]:
    """Lessons that are new to the document, the most frequent first, ties by name."""
    counts = Counter(
        lesson for lesson in lessons if lesson and lesson not in document and lesson not in banned
    )
    return sorted(counts, key=lambda lesson: (-counts[lesson], lesson))


def propose(
    document: str, lessons: Iterable[str], *, limit: int = LIMIT, banned: Collection[str] = ()
) -> list[str]:
    """The lessons to add next."""
    return ranked(document, lessons, banned=banned)[:limit]


class PromptChanged(BaseException):
    """A rival asks in words that its adapter does not know.

    Not an Exception: rivals catch those of a model and go on without its answer.
    """
