from __future__ import annotations


class MovingError(Exception):
    """It was not done, and nothing was changed; the message says why and what to do."""


class DamagedError(MovingError):
    """A backup, or a copied table, is not what it should be."""
