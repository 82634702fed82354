"""The reference of the API names every address of its document, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.api.description import document

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"


def test_every_address_is_in_the_reference() -> None:
    text = PAGE.read_text(encoding="utf-8")
    told = set(re.findall(r"^\| ([A-Z]+) \| `([^`]+)` \|", text, re.MULTILINE))
    there = {
        (
            method.upper(),
            path.removeprefix("/api/v1/").replace("projects/{project_id}/", "P/"),
        )
        for path, methods in document()["paths"].items()
        for method in methods
    }
    assert told == there
