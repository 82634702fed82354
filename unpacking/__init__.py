"""Archives that others made, read within limits.

`reading` is the one place of the product that opens a zip or tar file from outside: harnesses,
environments, adapters, logs of other tools and whole projects come in through it. It knows nothing
of what is in them, and neither of Django nor of the engines that use it.
"""

from __future__ import annotations

from unpacking.limits import Limits
from unpacking.names import NOT_OURS, is_hidden, safe_path
from unpacking.reading import Archive, Member, open_archive, read_archive
from unpacking.refusal import ArchiveRefused

__all__ = [
    "NOT_OURS",
    "Archive",
    "ArchiveRefused",
    "Limits",
    "Member",
    "is_hidden",
    "open_archive",
    "read_archive",
    "safe_path",
]
