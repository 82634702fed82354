"""The red team's page: who sees what, what is started, what stands first."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.grading.models import GoldenCase, RedTeamReport
from orchestrator.jobs.execution import run_attempt
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People, make_people

pytestmark = pytest.mark.django_db(transaction=True)
NAIVE: dict[str, Any] = {
    "criteria": [{"id": "has", "name": "Says 42", "kind": "contains", "params": {"texts": ["42"]}}]
}


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def rubric(people: People) -> Rubric:
    rubric = Rubric.objects.create(project=people.project, name="naive")
    create_rubric_version(rubric=rubric, spec=NAIVE)
    return rubric


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def address(rubric: Rubric, rest: str = "") -> str:
    return f"/p/{rubric.project_id}/rubrics/{rubric.pk}/red-team/{rest}"


def start(people: People, rubric: Rubric, **changes: str) -> RedTeamReport | None:
    fields = {"item": "1", "bases": "2", "cap": "0.5", **changes}
    answer = client_of(people.editor).post(address(rubric, "start/"), fields)
    assert answer.status_code == 302
    return RedTeamReport.objects.order_by("-id").first()


def attacked(people: People, rubric: Rubric) -> RedTeamReport:
    found = start(people, rubric)
    assert found is not None
    assert found.job is not None
    run_attempt(found.job.pk)
    found.refresh_from_db()
    return found


def text_of(user: Any, rubric: Rubric, query: str = "") -> str:
    answer = client_of(user).get(address(rubric) + query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_before_the_first_attack_the_page_says_what_it_is(people: People, rubric: Rubric) -> None:
    text = text_of(people.editor, rubric)
    assert "Never attacked" in text
    assert "Attack this rubric" in text
    assert "code alone decides" in text
    viewer = text_of(people.member, rubric)
    assert "Attack this rubric" not in viewer
    assert "An editor of the project can start one" in viewer
    assert client_of(people.stranger).get(address(rubric)).status_code == 404


def test_what_got_paid_stands_first_with_who_paid_it(people: People, rubric: Rubric) -> None:
    attacked(people, rubric)
    text = text_of(people.member, rubric)
    assert text.index("What got paid") < text.index("were not paid")
    assert "The words that criteria look for, and nothing else" in text
    assert "Says 42" in text
    assert "What to do:" in text
    assert "Make a golden case" not in text


def test_a_finding_is_kept_as_a_golden_case(people: People, rubric: Rubric) -> None:
    report = attacked(people, rubric)
    number = next(i for i, r in enumerate(report.results) if r["attack"] == "echo-keywords")
    editor, path = client_of(people.editor), address(rubric, f"{report.pk}/golden/")
    assert "Make a golden case" in text_of(people.editor, rubric)
    answer = editor.post(path, {"number": str(number)}, follow=True)
    assert "must fail from now on" in answer.content.decode()
    assert "A golden case holds it" in answer.content.decode()
    assert GoldenCase.objects.get().expect == "fail"
    assert "already" in editor.post(path, {"number": str(number)}, follow=True).content.decode()
    for wrong in ("", "x", "-1", "99999999999999"):
        assert editor.post(path, {"number": wrong}).status_code == 302
    assert GoldenCase.objects.count() == 1


def test_attacks_are_listed_and_cancelled(people: People, rubric: Rubric) -> None:
    first = attacked(people, rubric)
    second = start(people, rubric)
    assert second is not None
    assert second != first
    text = text_of(people.editor, rubric)
    assert "Waits for a worker" in text
    assert "Cancel attack" in text
    assert "History" in text
    client_of(people.editor).post(address(rubric, f"{second.pk}/cancel/"))
    second.refresh_from_db()
    assert second.state == "cancelled"
    assert "What got paid" in text_of(people.member, rubric, f"?report={first.pk}")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"item": "9"}, "no such version"),
        ({"bases": "one"}, "not a number of rollouts"),
        ({"bases": "nan"}, "not a number of rollouts"),
        ({"bases": "1000"}, "Attack 2 to 20 rollouts"),
        ({"cap": "-1"}, "cap for judges"),
    ],
)
def test_what_cannot_be_is_refused_with_words(
    people: People, rubric: Rubric, changes: dict[str, str], said: str
) -> None:
    fields = {"item": "1", "bases": "2", "cap": "0.5", **changes}
    answer = client_of(people.editor).post(address(rubric, "start/"), fields, follow=True)
    assert said in answer.content.decode()
    assert not RedTeamReport.objects.exists()


def test_viewers_and_strangers_change_nothing(people: People, rubric: Rubric) -> None:
    report = attacked(people, rubric)
    for rest in ("start/", f"{report.pk}/cancel/", f"{report.pk}/golden/"):
        assert client_of(people.member).post(address(rubric, rest)).status_code == 403
        assert client_of(people.stranger).post(address(rubric, rest)).status_code == 404
        assert client_of(people.editor).get(address(rubric, rest)).status_code == 405
    assert client_of(people.editor).post(address(rubric, "999/cancel/")).status_code == 404
    assert RedTeamReport.objects.count() == 1


def test_the_page_asks_no_more_with_more_reports(
    people: People, rubric: Rubric, django_assert_max_num_queries: Any
) -> None:
    for _ in range(3):
        attacked(people, rubric)
    client = client_of(people.editor)
    client.get(address(rubric))
    with django_assert_max_num_queries(16):
        client.get(address(rubric))
