"""Tables of tasks: what fits is read, what does not is named, and neither hides the other."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.authoring import rows, values
from orchestrator.environments.authoring.columns import COMMON
from orchestrator.environments.authoring.rows import ReadResult, RowError, read_rows
from orchestrator.environments.kinds import KINDS, Kind
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.kinds.terminal import TerminalKind
from tests.docs.pages import ROOT


class Quiz(TerminalKind):
    """A kind with a field of each type."""

    task_fields: Sequence[Field] = (
        Field("answers", "Right answers", "text_list", is_required=True, is_secret=True),
        Field(
            "match", "Compared as", "choice", choices=(("exact", "text"), ("number", "a number"))
        ),
        Field("tries", "Tries", "integer", default=1),
        Field("weight", "Weight", "number"),
        Field("is_open", "Open book", "flag"),
        Field("extra", "Extra", "json"),
    )

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        if "forbidden" in spec["answers"]:
            raise ValueError("answers must not be forbidden")


QUIZ: Kind = Quiz()


def read_csv(text: str | bytes, **options: Any) -> ReadResult:
    return read_rows(QUIZ, "csv", text, **options)


def only_error(result: ReadResult) -> RowError:
    assert len(result.errors) == 1, result.errors
    return result.errors[0]


def test_a_table_in_everyday_words_is_understood() -> None:
    result = read_csv(
        "ID,Question,Answer,Group,Split,Level\n"
        'q1,"What is 2, doubled?",4,sums,TRAIN,0.5\n'
        'q2,"Say ""hi""",hi,words,test,2\n'
    )
    assert not result.errors
    first, second = (item.task for item in result.tasks)
    assert (first.key, first.prompt, first.family) == ("q1", "What is 2, doubled?", "sums")
    assert first.spec == {"answers": ["4"], "tries": 1}
    assert (first.split, first.difficulty, first.reset) == ("train", 0.5, {"task": "q1"})
    assert (second.prompt, second.split) == ('Say "hi"', "test")
    assert [item.line for item in result.tasks] == [2, 3]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_delimiter_line_end_and_byte_order_mark_do_not_matter(
    delimiter: str, line_end: str
) -> None:
    text = line_end.join([delimiter.join(row) for row in (("key", "prompt", "answer"), "abc")])
    for content in (text, text.encode("utf-8-sig"), text.encode("utf-16")):
        result = read_csv(content)
        assert [item.task.key for item in result.tasks] == ["a"], result.errors


def test_a_row_without_a_key_gets_the_same_one_each_time() -> None:
    text = "question,answer\nwho?,me\nwhat?,this\n"
    first, second = (read_csv(text).tasks for _ in range(2))
    assert first == second
    assert len({item.task.key for item in first}) == 2
    assert "is on line 2 already" in only_error(read_csv(text + "who?,me\n")).reason


def test_each_bad_row_is_named_with_line_field_and_reason_and_the_rest_is_read() -> None:
    result = read_csv(
        b"key,prompt,answers,split,difficulty,match,tries,seeds\n"
        b"ok,p,a,train,1,exact,2,1 2 3\n"  # 2
        b"no-prompt,,a,train,,,,\n"  # 3
        b"no-answer,p,,train,,,,\n"  # 4
        b"bad-split,p,a,validation,,,,\n"  # 5
        b"bad-number,p,a,train,much,,,\n"  # 6
        b"bad-choice,p,a,train,,fuzzy,,\n"  # 7
        b"bad-int,p,a,train,,,2.5,\n"  # 8
        b"ok,p2,a,train,,,,\n"  # 9
        b"bad key,p,a,train,,,,\n"  # 10
        b"latin,caf\xe9,a,train,,,,\n"  # 11
        b"short,p\n"  # 12
        b"kind,p,forbidden,train,,,,\n"  # 13
        b"seed,p,a,train,,,,-1\n"  # 14
        b'open,"p,a,train,,,,\n'  # 15
        b"nul,p\x00,a,train,,,,\n"  # 16
        b"last,p,a,select,,,,\n"  # 17
    )
    found = {(error.line, error.field): error.reason for error in result.errors}
    assert set(found) == {
        (3, "prompt"),
        (4, "answers"),
        (5, "split"),
        (6, "difficulty"),
        (7, "match"),
        (8, "tries"),
        (9, "key"),
        (10, "key"),
        (11, "prompt"),
        (12, "row"),
        (13, "answers"),
        (14, "seeds"),
        (15, "row"),
        (16, "prompt"),
    }
    assert "use train, select or test" in found[5, "split"]
    assert "exact, number" in found[7, "match"]
    assert "UTF-8" in found[11, "prompt"]
    assert "2 cells, the header has 8" in found[12, "row"]
    assert "never closed" in found[15, "row"]
    assert result.n_bad_rows == 14
    assert [item.task.key for item in result.tasks] == ["ok", "last"]
    assert result.tasks[0].task.seeds == [1, 2, 3]
    assert next(e.raw for e in result.errors if e.line == 7) == "bad-choice,p,a,train,,fuzzy,,"


def test_a_row_tells_all_its_faults_at_once() -> None:
    result = read_csv("key,prompt,answers,split\nbad key,,a,nowhere\n")
    assert {error.field for error in result.errors} == {"key", "prompt", "split"}
    assert (result.n_bad_rows, result.n_errors) == (1, 3)


def test_a_quote_that_never_closes_costs_one_row_of_ten_thousand() -> None:
    lines = [f"q{n},prompt {n},{n}" for n in range(10_000)]
    lines[5_000] = 'q5000,"prompt,5000'
    result = read_csv("\n".join(["key,prompt,answers", *lines]))
    assert len(result.tasks) == 9_999
    assert only_error(result).line == 5_002


def test_texts_over_several_lines_keep_their_lines_and_the_count_goes_on() -> None:
    result = read_csv('key,prompt,answers\na,"one\ntwo\n\nthree","x\ny"\nb,,z\n')
    assert result.tasks[0].task.prompt == "one\ntwo\n\nthree"
    assert (result.tasks[0].task.spec or {})["answers"] == ["x", "y"]
    assert only_error(result).line == 7


def test_a_reference_belongs_to_train_tasks_alone() -> None:
    reference = [{"role": "assistant", "content": "4"}]
    rows_ = [
        {"key": split, "prompt": "p", "answers": ["4"], "split": split, "reference": reference}
        for split in ("train", "select", "test")
    ]
    result = read_rows(QUIZ, "jsonl", "\n".join(json.dumps(row) for row in rows_))
    assert [item.task.reference for item in result.tasks] == [reference]
    assert [(error.line, error.field) for error in result.errors] == [
        (2, "reference"),
        (3, "reference"),
    ]


def test_lines_of_json_are_read_and_bad_ones_named() -> None:
    good = {
        "id": "a",
        "question": "p",
        "answer": 4,
        "limits": {"max_steps": 3},
        "seeds": [7],
        "spec": {"weight": 2},
        "is_open": True,
    }
    lines = [
        json.dumps(good),
        "",
        "{nope",
        '["a list"]',
        '{"key": "b", "prompt": "p", "answer": "x", "weight": NaN}',
        '{"key": "c", "key": "d", "prompt": "p", "answer": "x"}',
        '{"key": "e", "prompt": "p", "answer": {"a": 1}}',
        '{"key": "f", "prompt": "\\ud800", "answer": "x"}',
        '{"key": "g", "prompt": "p", "answer": "x", "limits": {"max_stepps": 3}}',
        '{"key": "h", "prompt": "p", "answer": "x", "note": "kept apart"}',
    ]
    result = read_rows(QUIZ, "jsonl", "\r\n".join(lines))
    assert [item.task.key for item in result.tasks] == ["a", "h"]
    task = result.tasks[0].task
    assert task.spec == {"weight": 2, "answers": ["4"], "is_open": True, "tries": 1}
    assert (task.limits, task.seeds) == ({"max_steps": 3}, [7])
    assert [(error.line, error.field) for error in result.errors] == [
        (3, "row"),
        (4, "row"),
        (5, "row"),
        (6, "row"),
        (7, "answers"),
        (8, "row"),
        (9, "limits"),
    ]
    assert result.unused == ("note",)


def test_a_json_list_is_read_and_each_item_has_its_line() -> None:
    good = {"id": "a", "question": "p", "answer": "x"}
    items = [good, 4, {**good, "id": "b", "split": "exam"}, {**good, "id": "c"}]
    result = read_rows(QUIZ, "jsonl", json.dumps(items, indent=1))
    assert [item.task.key for item in result.tasks] == ["a", "c"]
    assert [item.line for item in result.tasks] == [2, 14]
    assert [(error.line, error.field) for error in result.errors] == [(7, "row"), (8, "split")]
    cut = json.dumps(items, indent=1)[:-40]
    broken = read_rows(QUIZ, "jsonl", cut)
    assert [item.task.key for item in broken.tasks] == ["a"]
    assert "cannot be read" in broken.errors[-1].reason


def test_the_table_in_the_guide_is_read() -> None:
    guide = (ROOT / "docs/how-to/write-an-environment.md").read_text(encoding="utf-8")
    table = guide.split("```csv\n")[1].split("```")[0]
    result = read_rows(KINDS["qa"], "csv", table)
    assert not result.errors
    assert [item.task.split for item in result.tasks] == ["train", "test"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("key,prompt,answers\n", "no rows"),
        ("1,2,3\n4,5,6\n", "must name the columns, among them: prompt, answers"),
        ("question,prompt,answers\na,b,c\n", "both mean prompt"),
    ],
)
def test_a_file_that_is_no_table_says_what_is_missing(text: str, reason: str) -> None:
    error = only_error(read_csv(text))
    assert error.field == "file"
    assert reason in error.reason


def test_limits_name_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROWS", 3)
    result = read_csv("key,prompt,answers\n" + "".join(f"q{n},p{n},a\n" for n in range(9)))
    assert len(result.tasks) == 3
    assert "more than 3 rows, the limit" in only_error(result).reason
    monkeypatch.setattr(rows, "MAX_BYTES", 10)
    assert "the limit of a file is 10" in only_error(read_csv("key,prompt,answers\n")).reason
    monkeypatch.undo()
    long = "x" * (values.MAX_TEXT_CHARS + 1)
    result = read_rows(QUIZ, "jsonl", json.dumps({"prompt": long, "answers": ["a"]}))
    assert "the limit of a text is 131,072" in only_error(result).reason


def test_errors_beyond_the_limit_are_counted() -> None:
    result = read_csv("key,prompt,answers\n" + "".join(f"q{n},,a\n" for n in range(1_500)))
    assert (len(result.errors), result.n_errors, result.n_bad_rows) == (1_000, 1_500, 1_500)


cell = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30
).filter(lambda text: bool(text.strip()))


@given(st.lists(st.tuples(cell, cell, st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_good_rows_survive_whatever_stands_between_them(
    rows_: list[tuple[str, str, bool]],
) -> None:
    """Well-formed rows alternate with rows that have a cell too many."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["key", "prompt", "extra"])
    expected, bad = [], 0
    for number, (prompt, extra, is_good) in enumerate(rows_):
        # A leading apostrophe before a formula's sign is what exports add, hence taken away.
        prompt, extra = f"p{prompt}", json.dumps(extra)
        if is_good:
            writer.writerow([f"k{number}", prompt, extra])
            expected.append((f"k{number}", prompt, json.loads(extra)))
        else:
            writer.writerow([f"k{number}", prompt, extra, "one too many"])
            bad += 1
    kind = Quiz()
    kind.task_fields = (Field("extra", "Extra", "json"),)
    kind.check_task = lambda spec, reset: None  # type: ignore[method-assign] # anything goes
    result = read_rows(kind, "csv", out.getvalue())
    assert [
        (item.task.key, item.task.prompt, (item.task.spec or {})["extra"]) for item in result.tasks
    ] == expected
    assert result.n_bad_rows == bad


@given(st.binary(max_size=300), st.sampled_from(["csv", "jsonl"]), st.sampled_from(sorted(KINDS)))
@settings(max_examples=150, deadline=None)
def test_no_bytes_make_it_fail(content: bytes, format: Any, kind: str) -> None:
    for text in (
        content,
        b"key,prompt,answer,files\n" + content,
        b'{"prompt": ' + content,
        b"[" + content,
    ):
        result = read_rows(KINDS[kind], format, text)
        assert result.tasks or result.errors
        json.dumps([vars(error) for error in result.errors], ensure_ascii=False).encode()


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.data(), st.sampled_from(sorted(KINDS)))
@settings(max_examples=150, deadline=None)
def test_no_value_of_any_field_makes_it_fail(data: st.DataObject, kind: str) -> None:
    names = [f.name for f in COMMON] + [f.name for f in KINDS[kind].task_fields]
    row = data.draw(st.dictionaries(st.sampled_from(names), json_value))
    result = read_rows(KINDS[kind], "jsonl", json.dumps(row))
    assert result.tasks or result.errors
