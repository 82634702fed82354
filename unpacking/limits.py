"""How much of an archive is read. Each door has its own; nothing is read without."""

from __future__ import annotations

from dataclasses import dataclass

RATIO_FLOOR_BYTES = 32 * 2**20
"""Up to here any ratio is fine: a small archive of zeros harms nobody."""


@dataclass(frozen=True)
class Limits:
    """Bytes are those of the files inside, unpacked, unless it says otherwise."""

    members: int
    """Entries of all kinds, those that are passed over included."""
    total_bytes: int
    sent_bytes: int | None = None
    """Of the archive as it was sent; None where the caller has counted already."""
    member_bytes: int | None = None
    """Of one file; None: `total_bytes` alone counts."""
    ratio: int = 200
    """Unpacked bytes per byte sent, above `RATIO_FLOOR_BYTES`. Text packs to about a tenth,
    tables of logs to a fiftieth; what goes beyond this was made to fill a disk."""


def amount(n_bytes: int) -> str:
    """`16 MiB`, `1.5 MiB`, `300 bytes`."""
    if n_bytes < 2**20:
        return f"{n_bytes:,} bytes"
    number = f"{n_bytes / 2**20:,.1f}".removesuffix(".0")
    return f"{number} MiB"
