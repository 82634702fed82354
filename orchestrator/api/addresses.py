"""Ids in addresses: whole numbers that every database can hold."""

from __future__ import annotations


class IdConverter:
    regex = "[0-9]{1,15}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: object) -> str:
        return str(value)
