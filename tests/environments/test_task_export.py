"""What is exported is read back as the same tasks."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.authoring.content import digest_of
from orchestrator.environments.authoring.export import csv_lines, jsonl_lines
from orchestrator.environments.authoring.rows import read_rows
from orchestrator.environments.services import NewTask
from tests.environments.test_task_rows import QUIZ

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
words = text.filter(lambda value: bool(value.strip()))
# A list of texts is one a line in a form, where blanks at the ends mean nothing.
lines = st.lists(words, min_size=1, max_size=3)


@st.composite
def quiz_tasks(draw: st.DrawFn) -> NewTask:
    key = draw(st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._:\-]{0,20}", fullmatch=True))
    split = draw(st.sampled_from(["train", "select", "test"]))
    reference = draw(st.none() | st.just([{"role": "assistant", "content": draw(text)}]))
    spec: dict[str, Any] = {"answers": draw(lines), "tries": draw(st.integers(0, 9))}
    if draw(st.booleans()):
        spec |= {"is_open": draw(st.booleans()), "weight": draw(st.floats(-5, 5))}
    if draw(st.booleans()):
        spec |= {"extra": draw(st.dictionaries(words, text, min_size=1, max_size=2)), "more": [1]}
    return NewTask(
        key=key,
        split=split,
        prompt=draw(words),
        family=draw(words).strip(),
        difficulty=draw(st.none() | st.floats(-9, 9) | st.integers(-9, 9)),
        reset={"task": key} | ({"size": 3} if draw(st.booleans()) else {}),
        spec=spec,
        limits={"max_steps": 3} if draw(st.booleans()) else {},
        seeds=draw(st.lists(st.integers(0, 2**31), max_size=3)),
        reference=reference if split == "train" else None,
    )


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_table_survives_the_way_out_and_in(format: Any) -> None:
    write = {"csv": csv_lines, "jsonl": jsonl_lines}[format]

    @given(st.lists(quiz_tasks(), min_size=1, max_size=4, unique_by=lambda task: task.key))
    @settings(max_examples=60, deadline=None)
    def check(tasks: list[NewTask]) -> None:
        result = read_rows(QUIZ, format, "".join(write(QUIZ, tasks)).encode())
        assert not result.errors
        assert [digest_of(item.task) for item in result.tasks] == [digest_of(t) for t in tasks]

    check()


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "'="])
def test_no_cell_is_a_formula(start: str) -> None:
    task = NewTask(
        key="q", split="train", prompt=f"{start}1+1", spec={"answers": [f"{start}2", "x"]}
    )
    rows = list(csv.reader(io.StringIO("".join(csv_lines(QUIZ, [task])), newline="")))
    assert not [cell for cell in rows[1] if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]
    result = read_rows(QUIZ, "csv", "".join(csv_lines(QUIZ, [task])))
    assert result.tasks[0].task.prompt == f"{start}1+1"
