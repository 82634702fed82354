"""The generator: deterministic, balanced, disjoint, and its transcripts really happened."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.terminal import tasks as terminal_tasks
from orchestrator.environments.terminal.observation import OUTPUT_LIMIT_BYTES, segments_of, text_of
from orchestrator.environments.terminal.spec import Match, TaskSpec, is_correct
from orchestrator.environments.terminal.tasks import FAMILIES, generate

seeds = st.integers(min_value=0, max_value=2**31 - 1)


@given(seed=seeds)
@settings(max_examples=3, deadline=None)
def test_the_same_seed_gives_the_same_tasks(seed: int) -> None:
    counts = {"train": 7, "select": 7, "test": 7}
    assert generate(seed, counts) == generate(seed, counts)
    assert generate(seed, counts) != generate(seed + 1, counts)


@given(seed=seeds)
@settings(max_examples=8, deadline=None)
def test_no_two_tasks_are_equal_across_splits(seed: int) -> None:
    tasks = generate(seed, {"train": 0, "select": 150, "test": 150})
    assert len({task.content_hash for task in tasks}) == 300
    assert len({task.key for task in tasks}) == 300


def test_splits_of_the_demo_are_balanced_and_only_train_carries_transcripts() -> None:
    tasks = generate(7)
    assert Counter(t.split for t in tasks) == {"train": 120, "select": 60, "test": 60}
    for split in ("train", "select", "test"):
        per_family = Counter(t.family for t in tasks if t.split == split)
        assert set(per_family) == set(FAMILIES)
        assert max(per_family.values()) - min(per_family.values()) <= 1
    assert all(bool(t.reference) == (t.split == "train") for t in tasks)


def test_a_larger_set_keeps_the_tasks_of_the_smaller() -> None:
    small = generate(3, {"train": 5, "select": 5})
    large = generate(3, {"train": 9, "select": 5})
    assert large[:5] == small[:5]


@given(seed=seeds)
@settings(max_examples=3, deadline=None)
def test_transcripts_end_in_the_right_answer_and_repeat_what_the_command_prints(seed: int) -> None:
    for task in generate(seed, {"train": 14}):
        command, reply, answer = task.reference
        assert [m["role"] for m in task.reference] == ["assistant", "user", "assistant"]
        output, exit_status = terminal_tasks._execute(command["content"], task.files)
        assert text_of(segments_of(output, exit_status=exit_status)) == reply["content"]
        assert answer["content"].startswith("answer: ")
        assert is_correct(task, answer["content"].removeprefix("answer:"))
        assert len(task.reference) // 2 < task.max_steps


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_files_stay_small_and_plain(seed: int) -> None:
    for task in generate(seed, {"select": 21}):
        name, _, request = task.prompt.partition(": ")
        assert name in task.files
        assert request
        assert 1 <= len(task.files) <= 3
        for content in task.files.values():
            assert content.endswith("\n")
            assert len(content.splitlines()) <= 12
            assert all(len(line) <= 40 for line in content.splitlines())


def test_a_file_of_tasks_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    assert terminal_tasks.main(["--seed", "5", "--out", str(path), "--train", "3"]) == 0
    assert terminal_tasks.load_jsonl(path) == generate(5, {"train": 3, "select": 60, "test": 60})


def test_a_broken_file_of_tasks_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    good = json.dumps(generate(5, {"test": 1})[0].as_json())
    path.write_text(f'{good}\n{{"key": "x"}}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        terminal_tasks.load_jsonl(path)


def _task(match: Match, answer: str) -> TaskSpec:
    return TaskSpec("test-0001", "test", "f", "p", {}, answer, match)


@pytest.mark.parametrize(
    ("match", "right", "answer", "correct"),
    [
        ("number", "7", " 7 ", True),
        ("number", "7", "07", True),
        ("number", "7", "7.0", True),
        ("number", "7", "7 notes.txt", False),
        ("number", "7", "nan", False),
        ("number", "7", "sNaN", False),
        ("number", "7", "", False),
        ("exact", "red  ice", "red ice", True),
        ("exact", "red ice", "Red ice", False),
        ("exact", "red ice", "red ice or blue", False),
        ("exact", "7", "07", False),
    ],
)
def test_answers_are_judged_strictly(match: Match, right: str, answer: str, correct: bool) -> None:
    assert is_correct(_task(match, right), answer) is correct


@pytest.mark.parametrize(
    ("output", "kwargs", "expected"),
    [
        (b"7 notes.txt\n", {"exit_status": 0}, [("env_output", "7 notes.txt")]),
        (b"", {"exit_status": 0}, [("scaffold", "(no output)")]),
        (
            b"grep: x: No such file\n",
            {"exit_status": 2},
            [("env_output", "grep: x: No such file"), ("scaffold", "\n(exit status 2)")],
        ),
        (
            b"",
            {"exit_status": 137, "warning": "time limit of 5 s"},
            [("scaffold", "(no output)"), ("warning", "\n(time limit of 5 s)")],
        ),
        (
            b"aa",
            {"exit_status": 0, "is_truncated": True},
            [("env_output", "aa"), ("warning", f"\n(cut at {OUTPUT_LIMIT_BYTES} bytes)")],
        ),
        (b"\xff\0", {"exit_status": 0}, [("env_output", "\ufffd\ufffd")]),
    ],
)
def test_the_wrappers_words_are_never_environment_output(
    output: bytes, kwargs: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    segments = segments_of(output, **kwargs)  # type: ignore[arg-type]
    assert [(s.kind, s.text) for s in segments] == expected
