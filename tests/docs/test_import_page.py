"""The code of the page on importing a rubric runs as it stands there."""

from __future__ import annotations

from rubrics.imports.tree import NodeKind
from tests.docs.pages import ROOT, python_blocks

PAGE = "docs/how-to/import-a-rubric.md"


def test_the_example_is_imported_and_graded() -> None:
    (block,) = python_blocks(PAGE).values()
    exec(compile(block, "example", "exec"), {"__name__": "example"})  # noqa: S102 - our own document


def test_every_node_is_explained() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert all(f"`{kind}`" in text for kind in NodeKind)
