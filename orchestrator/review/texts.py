"""What people write, as a database of either kind can store it. Pure."""

from __future__ import annotations

from orchestrator.review.errors import ReviewRefused

LONGEST_TEXT = 20_000


def storable(text: str, what: str) -> str:
    """Without the ends' white space; PostgreSQL takes neither NUL nor lone surrogates.

    Raises ReviewRefused, naming `what`, for a text that is too long.
    """
    clean = text.replace("\x00", "␀").encode("utf-8", "replace").decode().strip()
    if len(clean) > LONGEST_TEXT:
        raise ReviewRefused(f"{what}: accepts {LONGEST_TEXT:,} characters, got {len(clean):,}.")
    return clean
