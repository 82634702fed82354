"""The reference of filters names the fields that there are, and its examples can be read."""

from __future__ import annotations

import pytest

from orchestrator.runs.filtering.compiling import condition
from orchestrator.runs.filtering.fields import ROLLOUTS, RUNS, Schema
from orchestrator.runs.filtering.grammar import parse
from tests.docs.pages import ROOT, section

PAGE = "docs/reference/filters.md"


@pytest.mark.parametrize(("heading", "schema"), [("Rollouts", ROLLOUTS), ("Runs", RUNS)])
def test_every_field_is_told(heading: str, schema: Schema) -> None:
    text = section(PAGE, heading)
    told = {row.split("`")[1] for row in text.splitlines() if row.startswith("| `")}
    verdicts = set() if schema.is_of_runs else {"verdict.<criterion>"}
    assert told == {*schema.fields, *(f"{name}.<name>" for name in schema.nested)} | verdicts
    for field in schema.fields.values():
        assert f"| `{field.name}` | " in text and field.about in text


@pytest.mark.django_db
def test_the_examples_of_the_how_to_can_be_read() -> None:
    text = (ROOT / "docs/how-to/find-rollouts.md").read_text(encoding="utf-8")
    examples = text.split("```")[1].strip().splitlines()
    assert len(examples) == 4
    for example in examples:
        condition(parse(example), ROLLOUTS, project_id=1)
