"""Seeds as hashes: no random state to save, so a resumed run asks for the same again. Pure."""

from __future__ import annotations

import hashlib

SEED_BITS = 31
"""Environments accept seeds from 0 to 2^31 - 1 (`openenv`: negative ones are refused over HTTP)."""


def derive_seed(*parts: object) -> int:
    """A seed from its parts' text, in order; equal parts give equal seeds on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)
