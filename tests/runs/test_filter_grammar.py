"""The filter's grammar: what it reads, and where it says that something is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runs.filtering.grammar import (
    LONGEST,
    And,
    Comparison,
    FilterError,
    Node,
    Not,
    Or,
    Value,
    Words,
    parse,
    quoted,
)


def shape(node: Node | None) -> object:
    """The tree without positions."""
    if node is None:
        return None
    if isinstance(node, And | Or):
        return (type(node).__name__.lower(), *(shape(part) for part in node.parts))
    if isinstance(node, Not):
        return ("not", shape(node.part))
    if isinstance(node, Words):
        return node.text
    return (".".join(node.path), node.operator, *(value.text for value in node.values))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", None),
        ("  \n ", None),
        ("score<0.5", ("score", "<", "0.5")),
        ("score < 0.5 state = errored", ("and", ("score", "<", "0.5"), ("state", "=", "errored"))),
        (
            "a = 1 or b = 2 and not c = 3",
            ("or", ("a", "=", "1"), ("and", ("b", "=", "2"), ("not", ("c", "=", "3")))),
        ),
        (
            "(a = 1 or b = 2) AND c=3",
            ("and", ("or", ("a", "=", "1"), ("b", "=", "2")), ("c", "=", "3")),
        ),
        ('verdict."file exists" != errored', ("verdict.file exists", "!=", "errored")),
        ("sampling.top.k >= 40", ("sampling.top.k", ">=", "40")),
        ("task in (a, 'b c',\"d\")", ("task", "in", "a", "b c", "d")),
        ("task NOT IN (a)", ("task", "not in", "a")),
        ("score is empty", ("score", "empty")),
        ("score is not empty", ("score", "not empty")),
        ("disk full", "disk full"),
        ('disk "no space left" score > 0', ("and", 'disk "no space left"', ("score", ">", "0"))),
        ("it's here, in a file", "it's here in a file"),
        ("this is fine", "this is fine"),
        ("disk not full", ("and", "disk", ("not", "full"))),
        (r'answer ~ "say \"no\" \\"', ("answer", "~", 'say "no" \\')),
        ("a!~b", ("a", "!~", "b")),
        ("wow!", "wow!"),
    ],
)
def test_it_reads(text: str, tree: object) -> None:
    assert shape(parse(text)) == tree


@pytest.mark.parametrize(
    ("text", "wrong", "words"),
    [
        ("score <", "<", "a value after <"),
        ("score < and b = 1", "and", "value"),
        ("(score < 1", "(", "not closed"),
        ("score < 1)", ")", "closes nothing"),
        ("()", "()", "Nothing stands"),
        ("= 3", "=", "name is missing"),
        ('task = "a', '"a', "not closed"),
        ("or a", "or", "a condition"),
        ("a = 1 or", "r", "ends where"),
        ("not", "t", "ends where"),
        ("a..b = 1", "a..b", "no field"),
        ("x in (a b)", "b", ", or )"),
        ("x in ()", ")", "a value"),
        ("not " * 50 + "a", "not", "levels"),
        ("a=1 " * 61, "a", "conditions"),
    ],
)
def test_it_says_what_is_wrong_and_where(text: str, wrong: str, words: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    error = caught.value
    assert words in error.message
    assert text[error.start : error.end] == wrong


def test_a_filter_has_a_longest_length() -> None:
    with pytest.raises(FilterError, match="2,000 characters"):
        parse("a" * (LONGEST + 1))


names = st.text("abcxyz_", min_size=1, max_size=8).filter(
    lambda name: name not in ("in", "is", "and", "or", "not")
)
values = st.text(min_size=1, max_size=12)
comparisons = st.builds(
    lambda name, operator, given: Comparison(
        (name,), operator, tuple(Value(each, 0, 0) for each in given), 0, 0
    ),
    names,
    st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~", "!~"]),
    st.lists(values, min_size=1, max_size=1),
) | st.builds(
    lambda name, operator, given: Comparison(
        (name,), operator, tuple(Value(each, 0, 0) for each in given), 0, 0
    ),
    names,
    st.sampled_from(["in", "not in"]),
    st.lists(values, min_size=1, max_size=3),
)
trees = st.recursive(
    comparisons,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=2, max_size=3))
        | st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=8,
)


def written(node: Node) -> str:
    if isinstance(node, And | Or):
        word = " and " if isinstance(node, And) else " or "
        return word.join(f"({written(part)})" for part in node.parts)
    if isinstance(node, Not):
        return f"not ({written(node.part)})"
    assert isinstance(node, Comparison)
    given = ", ".join(quoted(value.text) for value in node.values)
    name = ".".join(node.path)
    return f"{name} {node.operator} " + (f"({given})" if "in" in node.operator else given)


@given(trees)
def test_what_is_written_reads_as_the_same(node: Node) -> None:
    assert shape(parse(written(node))) == shape(node)


@given(st.text(max_size=60) | st.text("ab \"'()=!<>~,.innotr", max_size=40))
def test_any_text_is_read_or_refused_at_a_place_inside_it(text: str) -> None:
    error = None
    try:
        parse(text)
    except FilterError as caught:
        error = caught
    if error is not None:
        assert 0 <= error.start <= error.end <= len(text)
        assert error.message
