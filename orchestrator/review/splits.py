"""Which labels are kept for testing. Pure.

A judge prompt that was improved on some labels must be tested on others. Which half a label belongs
to hangs on its rollout alone: two people's marks of one rollout, or a mark that is made again, are
never on both sides.
"""

from __future__ import annotations

import hashlib

HELD_OUT_SHARE = 0.5


def is_held_out(rollout_id: int) -> bool:
    digest = hashlib.sha256(f"held-out label of rollout {rollout_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < HELD_OUT_SHARE * 2**64


def is_swapped(queue_id: int, rollout_id: int, other_id: int) -> bool:
    """Whether `other` of a pair is shown left: a coin per pair, the same for all its reviewers."""
    digest = hashlib.sha256(f"sides of {queue_id}/{rollout_id}/{other_id}".encode()).digest()
    return bool(digest[0] & 1)
