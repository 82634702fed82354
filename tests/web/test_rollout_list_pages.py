"""The list of rollouts: what is on the screen, views that are kept, what ticked rows are for."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from orchestrator.grading.models import Regrade
from orchestrator.projects.models import User
from orchestrator.review.models import ReviewItem
from orchestrator.runs.models import Rollout, Run, SavedView, VerdictRecord
from tests.base import People, make_people
from tests.web.build import make_rollout, make_run, tasks_of

PAGES = {"rollouts", "rollout_words", "rollout_peek"}
FOR_EDITORS = {"rollouts_regrade"}
WRITES = {"view_save", "view_remove"}
OTHERS = {"rollout_export", "rollouts_compare"}
MOST_QUERIES = 8


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def url(people: People, name: str = "rollouts", *args: object) -> str:
    return reverse(f"web:{name}", args=[people.project.pk, *args])


def html_of(user: User, people: People, **query: str) -> str:
    answer = signed_in(user).get(url(people), query)
    assert answer.status_code == 200
    return str(answer.content.decode())


def ids_in(html: str) -> list[int]:
    return [int(found) for found in re.findall(r'<tr data-row data-id="(\d+)"', html)]


@pytest.fixture
def run(people: People) -> Run:
    """Six rollouts: three scored, one errored, one pending, one whose text a page must escape."""
    run = make_run(people.project, label="<b>first</b>")
    tasks = tasks_of(run)
    for number, score in enumerate((0.2, 0.5, 1.0)):
        rollout = make_rollout(run, tasks[number], score=score)
        VerdictRecord.objects.create(
            rollout=rollout, criterion="tidy", name="Tidy", state="scored", value=0.25, reason="so"
        )
    make_rollout(run, tasks[0], replicate=1, state="errored", cause="lost", message="=1+1")
    make_rollout(run, tasks[1], replicate=1, state="pending", answer="")
    make_rollout(run, tasks[2], replicate=1, score=0.0, answer="<script>alert(1)</script>")
    return run


def test_it_shows_every_rollout_and_a_filter_narrows_it(people: People, run: Run) -> None:
    html = html_of(people.member, people)
    assert len(ids_in(html)) == 6
    assert "<script>alert" not in html and "<b>first</b>" not in html
    html = html_of(people.member, people, q="score < 0.5 verdict.tidy < 1")
    assert ids_in(html) == [run.rollouts.get(score=0.2).pk]
    assert "data-count>1<" in html


def test_a_bar_leads_to_what_it_counts(people: People, run: Run) -> None:
    html = html_of(people.member, people)
    bars = re.findall(r'<a class="bin" href="([^"]+)"[^>]*data-n="(\d+)"', html)
    assert sum(int(n) for _, n in bars) == 6
    for href, n in bars:
        answer = signed_in(people.member).get(url(people) + unescape(href))
        assert len(ids_in(answer.content.decode())) == int(n)


def test_pages_turn_both_ways(people: People, run: Run) -> None:
    task = tasks_of(run)[0]
    for replicate in range(2, 60):
        make_rollout(run, task, replicate=replicate)
    first = html_of(people.member, people, sort="score")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None and 'rel="prev"' not in first
    client = signed_in(people.member)
    second = client.get(url(people) + unescape(following[1])).content.decode()
    back = re.search(r'rel="prev" href="([^"]+)"', second)
    assert back is not None and 'rel="next"' not in second
    assert len(ids_in(first)) == 50 and len(ids_in(second)) == 14
    assert not set(ids_in(first)) & set(ids_in(second))
    again = client.get(url(people) + unescape(back[1])).content.decode()
    assert ids_in(again) == ids_in(first)


@pytest.mark.parametrize(
    "query", [{"after": "x"}, {"before": "é"}, {"sort": "name"}, {"col": "x,verdict.,score"}]
)
def test_a_strange_address_is_the_usual_list(
    people: People, run: Run, query: dict[str, str]
) -> None:
    answer = signed_in(people.member).get(url(people), query, follow=True)
    assert len(ids_in(answer.content.decode())) == 6


def test_a_filter_that_cannot_be_read_is_marked(people: People, run: Run) -> None:
    html = html_of(people.member, people, q='scroe < 1 "<b>"')
    assert "<mark>scroe</mark>" in html and "Did you mean score?" in html
    assert not ids_in(html)


def test_empty_lists_name_the_next_action(people: People) -> None:
    assert "No rollouts yet" in html_of(people.editor, people)
    assert "Start a run" in html_of(people.editor, people)
    assert "Start a run" not in html_of(people.member, people)
    run = make_run(people.project)
    make_rollout(run, tasks_of(run)[0])
    html = html_of(people.member, people, q="score < 0.1")
    assert "No rollout matches this filter" in html and "There is 1 rollout without it" in html


def test_the_number_of_queries_has_a_bound(people: People, run: Run) -> None:
    client = signed_in(people.member)
    for query in (
        {},
        {"q": "score < 0.9", "sort": "-cost"},
        {"q": "verdict.tidy = 0.25 lines", "col": "verdict.tidy,verdict.other,score"},
        {"q": "steps = 77"},
        {"q": "nonsense = 1"},
    ):
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url(people), query).status_code == 200
        assert len(captured) <= MOST_QUERIES, [each["sql"][:90] for each in captured]
        reads = [each["sql"] for each in captured if 'FROM "runs_rollout"' in each["sql"]]
        assert all("LIMIT 51" in sql or "COUNT(" in sql for sql in reads), "no list is read whole"


def test_a_long_list_is_read_in_order(people: People, run: Run) -> None:
    """Without statistics too: pages by id, score and start walk an index as far as they go.

    What is sorted is the page alone, whose ids were found that way.
    """
    if connection.vendor != "sqlite":
        pytest.skip("reads SQLite's plans")
    from orchestrator.runs.rollout_list import list_rollouts, rollouts_matching

    for sort in ("-id", "-score", "-started"):
        with CaptureQueriesContext(connection) as captured:
            found = list_rollouts(
                rollouts_matching(people.project.pk, "", in_order=True), sort=sort
            )
        assert len(found.rows) == 6
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + captured[0]["sql"])
            plan = " · ".join(row[3] for row in cursor.fetchall())
        assert "TEMP B-TREE" not in plan.removesuffix("USE TEMP B-TREE FOR ORDER BY"), plan


def test_columns_are_chosen_and_verdicts_are_columns(people: People, run: Run) -> None:
    html = html_of(people.member, people, col="verdict.tidy,split")
    heads = re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?([^<]+)<', html)
    assert heads[-3:] == ["Task", "tidy", "split".title()]
    assert html.count(">0.25<") == 3


def test_a_peek_shows_verdicts_and_the_outline(people: People, run: Run) -> None:
    rollout = run.rollouts.get(score=0.2)
    answer = signed_in(people.member).get(url(people, "rollout_peek", rollout.pk))
    assert "Tidy" in answer.content.decode()
    assert "No event yet" in answer.content.decode()
    stranger = signed_in(people.stranger).get(url(people, "rollout_peek", rollout.pk))
    assert stranger.status_code == 404


def test_words_offer_what_the_project_has(people: People, run: Run) -> None:
    answer = signed_in(people.member).get(url(people, "rollout_words")).json()
    fields = {field["name"]: field for field in answer["fields"]}
    assert "verdict.correct" in fields
    assert run.environment_version.environment.slug in fields["environment"]["values"]
    assert fields["state"]["values"][0] == "pending"
    of_runs = signed_in(people.member).get(url(people, "rollout_words"), {"of": "runs"}).json()
    assert "verdict.correct" not in {field["name"] for field in of_runs["fields"]}


# --- exports ---------------------------------------------------------------------------------


def exported(people: People, form: str, **query: Any) -> str:
    answer = signed_in(people.member).get(url(people, "rollout_export", form), query)
    assert answer.status_code == 200
    return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]


def test_an_export_holds_what_the_filter_finds(people: People, run: Run) -> None:
    lines = exported(people, "jsonl", q="score >= 0.5").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["score"] for record in records] == [1.0, 0.5]
    assert records[0]["verdicts"]["tidy"] == {"state": "scored", "value": 0.25, "reason": "so"}
    ticked = run.rollouts.get(state="errored").pk
    (record,) = map(json.loads, exported(people, "jsonl", rollout=ticked).splitlines())
    assert record["id"] == ticked and record["score"] is None and record["reason"] == "=1+1"


def test_a_cell_is_no_formula(people: People, run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(exported(people, "csv", q="state = errored"))))
    assert [row["reason"] for row in rows] == ["'=1+1"]
    assert rows[0]["score"] == ""


def test_an_export_by_a_bad_filter_says_so(people: People) -> None:
    answer = signed_in(people.member).get(url(people, "rollout_export", "csv"), {"q": "x = 1"})
    assert answer.status_code == 400 and b"no field" in answer.content


def test_an_export_asks_as_often_for_many_rows_as_for_few(people: People, run: Run) -> None:
    with CaptureQueriesContext(connection) as few:
        exported(people, "jsonl")
    task = tasks_of(run)[0]
    for replicate in range(2, 40):
        make_rollout(run, task, replicate=replicate)
    with CaptureQueriesContext(connection) as many:
        assert exported(people, "jsonl").count("\n") == 44
    assert len(many) == len(few)


# --- ticked rows -----------------------------------------------------------------------------


def test_two_are_compared_step_by_step_and_more_as_runs(people: People, run: Run) -> None:
    client = signed_in(people.member)
    one, two = run.rollouts.order_by("pk")[:2]
    where = url(people, "rollouts_compare")
    answer = client.get(where, {"rollout": [one.pk, two.pk]})
    assert answer["Location"] == url(people, "compare_rollouts", one.pk, two.pk)
    other = make_run(people.project)
    three = make_rollout(other, tasks_of(other)[0])
    answer = client.get(where, {"rollout": [one.pk, two.pk, three.pk]})
    assert answer["Location"].endswith(f"?runs={run.pk},{other.pk}")
    answer = client.get(where, {"rollout": [one.pk]}, follow=True)
    assert "Tick two rollouts" in answer.content.decode()


def test_ticked_rollouts_are_graded_again_by_a_chosen_version(people: People, run: Run) -> None:
    ids = [rollout.pk for rollout in run.rollouts.filter(state="scored")]
    where = url(people, "rollouts_regrade")
    assert signed_in(people.member).post(where, {"rollout": ids}).status_code == 403
    client = signed_in(people.editor)
    answer = client.post(where, {"rollout": ids, "what": "choose"}, follow=True)
    assert f"Re-grade {len(ids)} rollouts" in answer.content.decode()
    answer = client.post(where, {"rollout": ids, "version": run.rubric_version_id})
    assert answer["Location"] == url(people, "regrade", Regrade.objects.get().pk)
    assert Regrade.objects.get().n_total == len(ids)
    assert "Tick rollouts" in client.post(where, {}, follow=True).content.decode()


def test_rollouts_of_several_runs_go_into_review(people: People, run: Run) -> None:
    other = make_run(people.project, rubric_version=run.rubric_version)
    ids = [run.rollouts.filter(state="scored")[0].pk, make_rollout(other, tasks_of(other)[0]).pk]
    answer = signed_in(people.editor).post(url(people, "review_add"), {"rollout": ids, "queue": ""})
    assert answer.status_code == 200 and ",".join(map(str, sorted(ids))) in answer.content.decode()
    assert not ReviewItem.objects.exists()


# --- saved views -----------------------------------------------------------------------------


def test_a_view_is_kept_shared_and_removed(people: People, run: Run) -> None:
    save = url(people, "view_save", "rollouts")
    sent = {"name": " Bad  ones ", "q": "score < 0.5", "sort": "-cost", "col": "score,x,split"}
    assert signed_in(people.member).post(save, {**sent, "shared": "1"}).status_code == 403
    answer = signed_in(people.member).post(save, sent, follow=True)
    assert "The view “Bad ones” is kept for you." in answer.content.decode()
    view = SavedView.objects.get()
    assert (view.query, view.sort, view.columns) == ("score < 0.5", "-cost", ["score", "split"])
    assert "Bad ones" not in html_of(people.editor, people)
    mine = html_of(people.member, people)
    href = re.search(r'href="([^"]+)">Bad ones', mine)
    assert href is not None
    opened = signed_in(people.member).get(url(people) + unescape(href[1]))
    assert set(ids_in(opened.content.decode())) == {
        rollout.pk for rollout in run.rollouts.filter(score__lt=0.5)
    }
    remove = url(people, "view_remove", view.pk)
    assert signed_in(people.editor).post(remove).status_code == 404
    signed_in(people.editor).post(save, {**sent, "shared": "1"})
    shared = SavedView.objects.get(is_shared=True)
    assert "Bad ones" in html_of(people.owner, people)
    assert signed_in(people.member).post(url(people, "view_remove", shared.pk)).status_code == 403
    assert signed_in(people.owner).post(url(people, "view_remove", shared.pk)).status_code == 302
    assert signed_in(people.member).post(remove).status_code == 302
    assert not SavedView.objects.exists()


def test_a_view_needs_a_name_and_replaces_one_of_its_name(people: People) -> None:
    save = url(people, "view_save", "runs")
    client = signed_in(people.member)
    answer = client.post(save, {"name": "  "}, follow=True)
    assert "Give the view a name" in answer.content.decode()
    client.post(save, {"name": "a", "q": "id > 1"})
    client.post(save, {"name": "a", "q": "id > 2"})
    assert SavedView.objects.get().query == "id > 2"
    assert signed_in(people.stranger).post(save, {"name": "a"}).status_code == 404


# --- runs ------------------------------------------------------------------------------------


def test_runs_are_filtered_by_what_their_rollouts_amount_to(people: People, run: Run) -> None:
    make_run(people.project, label="an empty one")
    client = signed_in(people.member)
    html = client.get(url(people, "runs"), {"q": "score < 0.5 errored = 1"}).content.decode()
    assert "an empty one" not in html and f'value="{run.pk}"' in html
    html = client.get(url(people, "runs"), {"q": "rollouts = 0"}).content.decode()
    assert "an empty one" in html and f'value="{run.pk}"' not in html
    html = client.get(url(people, "runs"), {"q": "score <"}).content.decode()
    assert "The filter ends where" in html


# --- random histories ------------------------------------------------------------------------

moves = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["running", "scored", "errored", "not_applicable", "cancelled", "retry"]),
        st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]),
    ),
    max_size=14,
)


class Histories(TestCase):
    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(moves)
    def test_counts_on_the_screen_are_counts_in_the_database(
        self, history: list[tuple[int, str, float]]
    ) -> None:
        people = make_people()
        run = make_run(people.project)
        tasks = tasks_of(run)
        for number in range(6):
            make_rollout(run, tasks[number % 3], replicate=number // 3, state="pending", answer="")
        for number, move, score in history:
            moved(run, number, move, score)
        html = html_of(people.member, people)
        stored = Rollout.objects.filter(run=run)
        assert sorted(ids_in(html)) == sorted(stored.values_list("pk", flat=True))
        shown = re.search(r"data-count>([\d,]+)<", html)
        assert shown is not None and int(shown[1]) == stored.count()
        bars = dict(re.findall(r'aria-label="([^":]+): [\d,]+ rollouts?"[^>]*data-n="(\d+)"', html))
        in_bars = {
            "errored": stored.filter(state="errored").count(),
            "not applicable": stored.filter(state="not_applicable").count(),
            "cancelled": stored.filter(state="cancelled").count(),
            "not ended": stored.filter(state__in=["pending", "running", "judging"]).count(),
        }
        for word, n in in_bars.items():
            assert int(bars.get(word, 0)) == n, word
        scored = sum(int(n) for word, n in bars.items() if word.startswith("score"))
        assert scored == stored.filter(state="scored").count()
        assert f"n&nbsp;{scored}" in html
        for state in ("scored", "errored", "pending"):
            narrowed = html_of(people.member, people, q=f"state = {state}")
            assert len(ids_in(narrowed)) == stored.filter(state=state).count()


def moved(run: Run, number: int, move: str, score: float) -> None:
    """One step of a history, as runs make them; `retry` puts a rollout in another's place."""
    rollout = Rollout.everything.filter(run=run).order_by("pk")[number]
    if move == "retry":
        if rollout.is_replaced:
            return
        Rollout.everything.filter(pk=rollout.pk).update(
            is_replaced=True, state="errored", score=None, message="its worker was lost"
        )
        make_rollout(
            run, rollout.task, replicate=rollout.replicate, state="pending", retry_of=rollout
        )
        return
    message = "it broke" if move == "errored" else ""
    Rollout.everything.filter(pk=rollout.pk, is_replaced=False).update(
        state=move, score=score if move == "scored" else None, message=message
    )
