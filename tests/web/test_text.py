from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.web.text import cell, cut, shell, shell_tokens, visible


@given(st.text(max_size=200))
def test_the_parts_of_a_command_are_the_command(command: str) -> None:
    assert "".join(text for _, text in shell_tokens(command)) == command


def test_a_command_is_coloured_by_its_parts() -> None:
    kinds = {text: kind for kind, text in shell_tokens("grep -c 'a b' x.log | wc -l > $OUT")}
    assert kinds["grep"] == kinds["wc"] == "cmd"
    assert kinds["-c"] == kinds["-l"] == "flag"
    assert kinds["'a b'"] == "str"
    assert kinds["|"] == kinds[">"] == "op"
    assert kinds["$OUT"] == "var"
    assert kinds["x.log"] == ""


@given(st.text(st.characters(), max_size=200))
def test_shown_text_holds_no_control_direction_or_surrogate_character(text: str) -> None:
    for shown in (visible(text), shell(text)):
        assert not re.search(
            "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown
        )


@given(st.text(alphabet="<>&\"'ab", max_size=60))
def test_markup_in_text_stays_text(text: str) -> None:
    shown = re.sub(r"</?span[^>]*>", "", visible(text))
    assert "<" not in shown and ">" not in shown


def test_odd_characters_are_marks_with_a_name() -> None:
    assert "␀" in visible("\x00")
    assert "U+202E" in visible("\u202eevil")
    assert visible("\U0001f468\u200d\U0001f469") == "\U0001f468\u200d\U0001f469"
    assert "U+200D" in visible("a\u200db")
    assert visible("\ud800") == "\ufffd"


@given(st.text(max_size=400), st.integers(2, 50))
def test_a_cell_is_one_line_within_its_limit(text: str, limit: int) -> None:
    shown = cell(text, limit)
    assert len(shown) <= limit
    assert "\n" not in shown


def test_a_cut_says_how_much_is_missing() -> None:
    assert cut("abcdef", 4) == ("abcd", 2)
    assert cut("abc", 4) == ("abc", 0)
