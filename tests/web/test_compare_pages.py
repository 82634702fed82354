"""Comparison of runs and of two rollouts, by their pages."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.projects.models import User
from orchestrator.runs.models import Rollout
from rubrics.models import RubricVersion
from tests.base import People
from tests.web.build import make_environment, make_rollout, make_run, tasks_of
from tests.web.compare_rows import Compared, make_compared

PAGES = {"compare", "compare_rollouts"}


@pytest.fixture
def compared(people: People) -> Compared:
    return make_compared(people.project, tasks=8)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def html_of(people: People, query: str) -> str:
    url = reverse("web:compare", args=[people.project.pk])
    response = signed_in(people.member).get(f"{url}{query}")
    assert response.status_code == 200
    return re.sub(r"\s+", " ", response.content.decode())


def diff_url(left: Rollout, right: Rollout) -> str:
    return reverse("web:compare_rollouts", args=[left.run.project_id, left.pk, right.pk])


def test_it_says_what_changed_with_interval_and_test(people: People, compared: Compared) -> None:
    html = html_of(people, compared.query)
    # Of tasks 0 to 7 the baseline passes 0, 3 and 6, the other all but 1 and 5: 2, 4, 7 are gained.
    assert "3 better · 0 worse · n 8 tasks, 16 pairs" in html
    assert "0.38 → 0.75" in html
    assert "+0.38" in html
    assert "sign flips, exact" in html


def test_what_errored_is_no_zero_and_below_the_floor_there_is_no_verdict(
    people: People, compared: Compared
) -> None:
    html = html_of(people, compared.query)
    assert "no verdict: too few scored" in html
    assert f"Only 75% of Run {compared.erring.pk} has a score" in html
    assert html.count(">errored</a>") == 2  # tasks 2 and 6 of the table


def test_another_rubric_version_is_warned_of_by_name(people: People, compared: Compared) -> None:
    old = compared.better.rubric_version
    new = RubricVersion.objects.create(rubric=old.rubric, number=2, spec=old.spec, sha256="aa" * 32)
    compared.better.rubric_version = new
    compared.better.save()
    html = html_of(people, compared.query)
    assert f"Run {compared.base.pk} used files v1, Run {compared.better.pk} files v2" in html
    assert "another version of the rubric" in html


def test_tasks_of_one_side_only_are_listed_and_in_no_difference(
    people: People, compared: Compared
) -> None:
    compared.better.rollouts.filter(task__key="test-0003").delete()
    html = html_of(people, f"?runs={compared.base.pk},{compared.better.pk}")
    assert f"1 task only in Run {compared.base.pk} (test-0003): shown, and in no difference" in html
    assert "n 7 tasks" in html
    assert "not run" in html


def test_another_environment_shares_no_task(people: People, compared: Compared) -> None:
    other = make_run(people.project, environment_version=make_environment(people.project))
    make_rollout(other, tasks_of(other)[0])
    html = html_of(people, f"?runs={compared.base.pk},{other.pk}")
    assert "another environment" in html
    assert "No pair with two scores" in html


@pytest.mark.parametrize(
    ("show", "n"),
    [("all", 8), ("failures", 6), ("passes", 2), ("errors", 2), ("different", 7)],
)
def test_modes_show_what_they_say(people: People, compared: Compared, show: str, n: int) -> None:
    html = html_of(people, f"{compared.query}&show={show}")
    assert html.count("<tr data-row") == n
    assert f'{show} <span class="num faint">{n}</span>' in html


def test_the_worst_regression_comes_first_when_asked_for(
    people: People, compared: Compared
) -> None:
    base, erring = compared.base.pk, compared.erring.pk
    html = html_of(people, f"?runs={base},{erring}&sort=regression")
    first = re.findall(r'<tr data-row id="t-([^"]+)"', html)[0]
    assert first in ("test-0001", "test-0007")  # passed by the baseline, failed or errored by it
    assert "▼&nbsp;−1.00" in html.split("<tr data-row")[1]


def test_differs_only_says_how_many_it_hides(people: People, compared: Compared) -> None:
    base, better = compared.base.pk, compared.better.pk
    html = html_of(people, f"?runs={base},{better}&differs=1")
    assert html.count("<tr data-row") == 3
    assert "5 equal hidden" in html
    assert "equal fields hidden" in html
    assert "Sampling" in html and ">Environment</th>" not in html


def test_outputs_stand_side_by_side_and_as_word_differences(
    people: People, compared: Compared
) -> None:
    html = html_of(people, f"{compared.query}&layout=grid&words=1")
    assert re.search(r"<del> ?4</del><ins> ?3</ins>", html)
    assert "step timeout: No answer for 60 s." in html


def test_groups_have_their_means(people: People, compared: Compared) -> None:
    html = html_of(people, f"{compared.query}&layout=summary")
    assert "count lines" in html and "first line" in html


def test_attempts_give_pass_at_k(people: People, compared: Compared) -> None:
    html = html_of(people, compared.query)
    assert "pass@1" in html and "pass@2" in html


def test_runs_can_be_chosen_on_the_page(people: People, compared: Compared) -> None:
    html = html_of(people, "")
    assert html.count('type="checkbox" name="runs"') == 3
    html = html_of(people, f"?runs={compared.base.pk}")
    assert f'type="hidden" name="runs" value="{compared.base.pk}"' in html
    assert html.count('type="checkbox" name="runs"') == 2
    # A form sends the field once for each.
    html = html_of(people, f"?runs={compared.base.pk}&runs={compared.better.pk}")
    assert "Task by task" in html


def test_an_empty_project_is_told_the_next_step(people: People) -> None:
    url = reverse("web:compare", args=[people.project.pk])
    html = signed_in(people.editor).get(url).content.decode()
    assert "Nothing to compare yet" in html and "Start a run" in html


def test_runs_of_another_project_do_not_exist_here(people: People, compared: Compared) -> None:
    elsewhere = people.stranger.memberships.get().project_id
    url = reverse("web:compare", args=[elsewhere])
    response = signed_in(people.stranger).get(f"{url}{compared.query}")
    assert response.status_code == 200
    html = response.content.decode()
    assert f"This project has no {compared.base.pk}" in html
    assert "Baseline" not in html


@pytest.mark.parametrize(
    "query",
    ["?runs=abc,9999999999999999999,1.2.3", "?runs=,,", "?show=x&sort=y&layout=z&page=-1"],
)
def test_nonsense_in_the_address_is_no_error(people: People, query: str) -> None:
    html_of(people, query)


def test_harnesses_of_one_run_can_be_taken_apart(people: People, compared: Compared) -> None:
    run = make_run(
        people.project,
        environment_version=compared.base.environment_version,
        rubric_version=compared.base.rubric_version,
    )
    one, two = (c.rollouts.first().harness for c in (compared.base, compared.better))  # type: ignore[union-attr] # they have rollouts
    for task in tasks_of(run):
        make_rollout(run, task, harness=one, score=0.0)
        make_rollout(run, task, harness=two, score=1.0)
    html = html_of(people, f"?runs={compared.base.pk},{run.pk}")
    assert "had 2 harnesses" in html and "one by one" in html
    html = html_of(people, f"?runs={run.pk}.{one.pk},{run.pk}.{two.pk}")
    assert "0.00 → 1.00" in html
    assert "had 2 harnesses" not in html


def test_the_number_of_queries_is_fixed(people: People, compared: Compared) -> None:
    client = signed_in(people.owner)
    url = reverse("web:compare", args=[people.project.pk]) + compared.query

    def n_queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        return len(captured)

    few = n_queries()
    task = tasks_of(compared.base)[0]
    for replicate in range(2, 20):
        make_rollout(compared.base, task, replicate=replicate)
    assert n_queries() == few <= 20


# --- two rollouts -----------------------------------------------------------------------------


def test_two_rollouts_are_aligned_up_to_where_they_part(people: People, compared: Compared) -> None:
    left = compared.base.rollouts.get(task__key="test-0003", replicate=0)
    right = compared.better.rollouts.get(task__key="test-0003", replicate=0)
    html = signed_in(people.member).get(diff_url(left, right)).content.decode()
    assert "Alike for 2 steps, then they part" in html
    assert 'href="#s2"' in html
    assert "first divergence" in html
    assert f"{reverse('web:rollout', args=[people.project.pk, left.pk])}#e6" in html


def test_a_rollout_is_alike_with_itself(people: People, compared: Compared) -> None:
    left = compared.rollouts(compared.base)[0]
    html = signed_in(people.member).get(diff_url(left, left)).content.decode()
    assert "The two traces are alike in all 3 steps" in html
    assert "Both sides are the same rollout" in html


def test_other_tasks_are_named(people: People, compared: Compared) -> None:
    left, right = compared.rollouts(compared.base)[0], compared.rollouts(compared.base)[2]
    html = signed_in(people.member).get(diff_url(left, right)).content.decode()
    assert "Different tasks: test-0001 and test-0002" in html


def test_strangers_and_ids_of_other_projects_get_404(people: People, compared: Compared) -> None:
    left, right = compared.rollouts(compared.base)[:2]
    assert signed_in(people.stranger).get(diff_url(left, right)).status_code == 404
    elsewhere = people.stranger.memberships.get().project_id
    url = reverse("web:compare_rollouts", args=[elsewhere, left.pk, right.pk])
    assert signed_in(people.stranger).get(url).status_code == 404
    url = reverse("web:compare", args=[people.project.pk])
    assert signed_in(people.stranger).get(url).status_code == 404
    assert Client().get(url).status_code == 302
