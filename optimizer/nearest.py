"""Which texts are worded most like another one.

Words count in any order and without case, so that two tasks of one family are near although their
names and numbers differ. The choice depends on nothing but the texts and their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz import fuzz, utils


def nearest(text: str, others: Sequence[str], *, k: int) -> list[int]:
    """Positions of the k most similar of `others`, the most similar last; of equals the earlier.

    Left out are texts equal to `text` in everything but case and space: they are `text` itself.
    """
    own = _plain(text)
    ranked = sorted(
        (-fuzz.token_sort_ratio(own, words, processor=utils.default_process), position)
        for position, words in enumerate(map(_plain, others))
        if words != own
    )
    return [position for _, position in ranked[:k]][::-1]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
