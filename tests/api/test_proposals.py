"""The REST API of proposals that are handed in: rights, answers and the shape of errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from optimizer.models import Proposal
from orchestrator.projects.models import Role, User
from orchestrator.projects.services import issue_token
from orchestrator.proposing.names import HANDED_IN
from tests.base import People
from tests.proposing.build import GOOD, answered, ask, make_search, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(people: People) -> Proposal:
    return answered(make_search(people.project), HANDED_IN)


def url_of(proposal: Proposal) -> str:
    return reverse("api:proposal_answer", args=[proposal.search_id, proposal.round])


def token_of(people: People, user: User, role: Role = Role.EDITOR) -> dict[str, Any]:
    issued = issue_token(actor=user, project_id=people.project.pk, name="t", role=role)
    return {"HTTP_AUTHORIZATION": f"Bearer {issued.secret}"}


def post(proposal: Proposal, body: Any, **headers: Any) -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    return Client().post(url_of(proposal), text, content_type="application/json", **headers)


def problem_in(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["type"]) == (status, "about:blank")
    assert body["title"]
    return body


def test_an_agent_takes_the_question_and_answers_it(people: People, waiting: Proposal) -> None:
    token = token_of(people, people.editor)
    asked = Client().get(url_of(waiting), **token).json()
    assert (asked["state"], asked["edits"]) == ("waiting", [])
    assert asked["schema"]["required"] == ["cause", "edits"]
    assert asked["rollouts"]
    bad = {**GOOD, "component": "harness.yaml"}
    response = post(waiting, {"cause": "It guesses.", "edits": [GOOD, bad]}, **token)
    assert response.status_code == 200
    body = response.json()
    assert (body["state"], body["reason"], len(body["edits"])) == ("answered", "It guesses.", 1)
    assert body["refused"][0]["findings"][0].startswith("component: ")
    waiting.refresh_from_db()
    assert (waiting.state, waiting.created_by) == ("answered", people.editor)
    assert "answered already" in problem_in(post(waiting, {"edits": []}, **token), 409)["detail"]
    assert Client().get(url_of(waiting), **token).json()["state"] == "answered"


def test_a_reply_may_come_as_text(people: People, waiting: Proposal) -> None:
    response = post(waiting, {"text": f"So:\n{said()}"}, **token_of(people, people.owner))
    assert len(response.json()["edits"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ("{", 400, "The body is not JSON"),
        ("[]", 400, "The request is not valid."),
        ({"text": "none"}, 422, "The answer cannot be read"),
        ({"edits": [{**GOOD, "op": "improve"}]}, 422, "Nothing of the answer may be tried."),
    ],
)
def test_a_bad_answer_is_a_problem_and_the_proposal_waits_on(
    people: People, waiting: Proposal, body: Any, status: int, detail: str
) -> None:
    found = problem_in(post(waiting, body, **token_of(people, people.editor)), status)
    assert detail in found["detail"]
    assert status == 400 or detail.startswith("The answer") or "op is 'improve'" in str(found)
    waiting.refresh_from_db()
    assert waiting.state == "waiting"


def test_rights_are_those_of_the_project_and_of_the_token(
    people: People, waiting: Proposal
) -> None:
    viewer = token_of(people, people.member, Role.VIEWER)
    assert Client().get(url_of(waiting), **viewer).status_code == 200
    assert "Editor" in problem_in(post(waiting, {"edits": []}, **viewer), 403)["detail"]
    limited = token_of(people, people.owner, Role.VIEWER)
    problem_in(post(waiting, {"edits": []}, **limited), 403)
    stranger = Client()
    stranger.force_login(people.stranger)
    problem_in(stranger.get(url_of(waiting)), 404)
    refused = post(waiting, {"edits": []})
    problem_in(refused, 401)
    assert refused["WWW-Authenticate"] == "Bearer"
    problem_in(post(waiting, {}, HTTP_AUTHORIZATION="Bearer swb_none"), 401)
    problem_in(Client().put(url_of(waiting), **viewer), 405)


def test_what_is_not_there_yet_is_told(people: People) -> None:
    search = make_search(people.project)
    token = token_of(people, people.editor)
    proposal = ask(search, HANDED_IN)
    early = problem_in(Client().get(url_of(proposal), **token), 409)
    assert "still being written" in early["detail"]
    ask(search, "reflection", round=1)
    missing = reverse("api:proposal_answer", args=[search.pk, 1])
    problem_in(Client().get(missing, **token), 404)
