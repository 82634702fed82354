"""What reviewing refuses. The message is for the page: it says what happened and what to do."""

from __future__ import annotations


class ReviewError(Exception):
    """Base of this app's errors."""


class ReviewRefused(ReviewError, ValueError):
    """A queue, an item or a mark is not acceptable as it was sent."""


class ItemGone(ReviewError, LookupError):
    """The item was deleted while it was open."""


class ItemMoved(ItemGone):
    """The item is in another queue now."""


class SeatLost(ReviewError, RuntimeError):
    """All seats of the item are taken by others."""
