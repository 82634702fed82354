from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runs.queries import EMPTY_TALLY, Tally
from orchestrator.web.templatetags import formats


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_a_mean_stands_beside_its_counts() -> None:
    tally = Tally(163, 0, 148, 12, 3, 0, 0.62, 92, 0, 0.0)
    html = str(formats.tally_line(tally)).replace("&nbsp;", " ")
    assert "<b>0.62</b>" in html and "n 148" in html and "12 errored" in html and "3 n/a" in html


def test_no_score_is_a_dash_and_never_a_zero() -> None:
    assert "0.00" not in formats.tally_line(EMPTY_TALLY)
    for shown in (
        formats.score,
        formats.signed,
        formats.decimal,
        formats.percent,
        formats.duration,
    ):
        nothings: list[Any] = [None, "", float("nan")]
        for nothing in nothings:
            assert shown(nothing) == "–"


def test_gains_have_a_sign_and_a_true_minus() -> None:
    assert formats.signed(0.061) == "+0.06"
    assert formats.signed(-0.02) == "−0.02"
    assert formats.signed(0.001) == "±0.00"
    assert formats.interval(-0.02, 0.14, "s") == "[−0.02, +0.14]"
    assert formats.interval(None, 0.14) == ""


def test_durations_and_sizes_are_short() -> None:
    assert plain(formats.duration(0.42)) == "0.4 s"
    assert plain(formats.duration(220)) == "3 min 40 s"
    assert plain(formats.duration(7500)) == "2 h 05 min"
    assert plain(formats.compact(21_000)) == "21 k"
    assert formats.usd(0.0) == "$0.00"
    assert formats.usd(0.001) == "<$0.01"
    assert formats.scientific(4.1e8) == "4.1·10⁸"


def test_a_time_names_its_zone_and_is_the_same_instant_everywhere() -> None:
    here = datetime(2026, 11, 29, 20, 42, tzinfo=timezone(timedelta(hours=2)))
    assert formats.instant(here) == formats.instant(here.astimezone(UTC))
    assert "29 Nov, 18:42 UTC" in formats.instant(here)


@given(st.dictionaries(st.sampled_from(["message", "answer", "cause"]), st.text(max_size=300)))
def test_a_reason_is_short_and_escaped(row: dict[str, str]) -> None:
    shown = formats.row_reason({"state": "errored", **row})
    assert "<script" not in shown


def test_an_error_gives_its_reason_in_the_list() -> None:
    row = {"state": "errored", "cause": "session_lost", "message": "the server closed the session"}
    assert formats.row_reason(row) == "session lost: the server closed the session"
