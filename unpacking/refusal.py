"""Why an archive is not read: in words for who sent it, and as a code for programs."""

from __future__ import annotations

from typing import Literal

Code = Literal[
    "not-an-archive",
    "damaged",
    "encrypted",
    "compression",
    "link",
    "special-file",
    "outside",
    "name",
    "twice",
    "overlap",
    "too-many",
    "too-large",
    "ratio",
]


class ArchiveRefused(ValueError):
    """The text names the member, the limit where there is one, and what to do."""

    def __init__(self, code: Code, text: str, member: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.member = member
