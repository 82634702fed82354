"""Regular expressions with a time limit.

Patterns come from people and texts from models; some pairs take longer than the age of the
universe. The `regex` package can stop in the middle, the standard library cannot.
"""

from __future__ import annotations

import regex

from rubrics.errors import CriterionFailed

TIMEOUT_S = 0.5
"""Ordinary patterns need microseconds; a longer wait only delays the message."""


def is_found(pattern: str, text: str, *, whole: bool = False, ignore_case: bool = False) -> bool:
    """Whether `pattern` occurs in `text` (`whole`:

    is all of it). Raises CriterionFailed after TIMEOUT_S.
    """
    flags = regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0)
    compiled = regex.compile(pattern, flags)
    try:
        match = compiled.fullmatch if whole else compiled.search
        return match(text, timeout=TIMEOUT_S) is not None
    except TimeoutError as error:
        raise CriterionFailed(
            f"pattern {pattern!r} took longer than {TIMEOUT_S} s on {len(text)} characters"
        ) from error
