"""The page on proposing edits says what the code has, and its code runs as it stands there."""

from __future__ import annotations

import json
import re
from dataclasses import fields

from optimizer.reflection import Mode, read_answer
from optimizer.reflection.triggers import TUNING_SHARE
from orchestrator.proposing.answering import MAX_REPLIES
from orchestrator.proposing.calls import REQUEST_TIMEOUT_S
from orchestrator.proposing.material import PERSONS_SUPPORT
from orchestrator.proposing.names import PROPOSERS
from orchestrator.proposing.terms import Terms
from orchestrator.proposing.tuning import MAX_DESCRIPTIONS
from tests.docs.pages import names, python_blocks, read, rows, section

PAGE = "docs/how-to/propose-edits.md"


def test_its_code_runs_as_it_stands() -> None:
    exec(compile(python_blocks(PAGE)["try it"], "example", "exec"), {})  # noqa: S102 - our own document


def test_the_answer_that_it_shows_is_one() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", section(PAGE, "The answer"), flags=re.DOTALL)
    assert len(read_answer(block, Mode.EDITS).edits) == len(json.loads(block)["edits"]) == 1


def test_every_proposer_has_its_line() -> None:
    intro = read(PAGE).split("\n## ")[0]
    assert names(intro) == set(PROPOSERS)


def test_every_term_is_documented_with_its_default() -> None:
    documented = {row[0].strip("`"): row[1] for row in rows(section(PAGE, "Terms"))}
    assert documented.keys() == {item.name for item in fields(Terms)}
    default = Terms()
    for name in ("max_edits", "failed", "passed", "room_chars", "max_tokens", "patience_s", "runs"):
        assert documented[name] == str(getattr(default, name)), name


def test_its_numbers_are_those_of_the_code() -> None:
    text = read(PAGE)
    assert (MAX_REPLIES, PERSONS_SUPPORT) == (3, 2)
    assert "at most twice" in text
    assert "hands in counts as two" in text
    assert f"{TUNING_SHARE:.0%}".replace("%", " %") in text
    assert f"at most {MAX_DESCRIPTIONS} that the" in text
    assert f"within {REQUEST_TIMEOUT_S / 60:g} minutes" in text
