"""Reading the documents: code blocks, first columns of tables, links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def python_blocks(name: str) -> dict[str, str]:
    """Title to code; the title is the comment in the first line of a block, such as a file name."""
    blocks = _BLOCK.findall(read(name))
    return {block.splitlines()[0].removeprefix("# "): block for block in blocks}


def section(name: str, heading: str) -> str:
    """The text below a heading of level 2, up to the next one. Raises KeyError."""
    parts = re.split(r"^## (.+)$", read(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without heads and rules."""
    found: list[list[str]] = []
    lines = text.splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|--") and found and above.startswith("|"):
            found.pop()  # the head
        elif line.startswith("|") and not line.startswith("|--"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def names(text: str) -> set[str]:
    """What stands in code quotes in the first column of the text's tables."""
    return {name for row in rows(text) for name in re.findall(r"`([^`]+)`", row[0])}


def links(name: str) -> list[str]:
    return [link for link in _LINK.findall(read(name)) if "://" not in link]
