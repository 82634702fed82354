"""Proposals that people and agents answer: as files, by the command, over REST."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.http import Http404

from optimizer.models import Nudge, Proposal, Search
from orchestrator.proposing.errors import AnswerRefused
from orchestrator.proposing.handing import answer, handed_out
from orchestrator.proposing.names import HANDED_IN
from tests.base import People
from tests.proposing.build import GOOD, SEALED, answered, ask, edits_of, make_search, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def search(people: People) -> Search:
    return make_search(people.project)


@pytest.fixture
def waiting(search: Search) -> Proposal:
    return answered(search, HANDED_IN)


def test_the_file_holds_question_form_and_traces(search: Search) -> None:
    Nudge.objects.create(search=search, text="Mind the units.")
    proposal = answered(search, HANDED_IN)
    out = json.loads(json.dumps(handed_out(proposal)))
    assert out["prompt"] == proposal.prompt
    assert out["schema"]["required"] == ["cause", "edits"]
    assert out["components"] == {"instructions.md": "Answer questions.\n"}
    assert out["nudges"] == ["Mind the units."]
    assert {item["outcome"] for item in out["rollouts"]} == {"passed", "failed"}
    assert out["rollouts"][0]["steps"][0]["observed"].startswith("text of train-")
    assert SEALED not in json.dumps(out)


def test_an_answer_ends_the_proposal_with_its_edits(people: People, waiting: Proposal) -> None:
    entry = {**GOOD, "tasks": []}
    found = answer(actor=people.editor, proposal=waiting, text=f"Here:\n{said(entry)}")
    (edit,) = edits_of(found)
    assert (found.state, found.created_by, edit.support) == ("answered", people.editor, 2)
    assert found.answers[0]["by"] == people.editor.username
    with pytest.raises(AnswerRefused, match="answered already"):
        answer(actor=people.editor, proposal=found, text=said())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I do not know.", "cannot be read: the reply holds no JSON object"),
        (said()[:-20], "cut off"),
        (said({**GOOD, "component": "harness.yaml"}), "is not to be changed"),
        (said({**GOOD, "content": f"{SEALED} The second."}), "copies a held-out task"),
        (said({**GOOD, "op": "replace", "anchor": "nowhere"}), "anchor 'nowhere'"),
        ("x" * 400_001, "at most 400,000 characters"),
    ],
)
def test_a_refused_answer_says_why_and_the_proposal_waits_on(
    people: People, waiting: Proposal, text: str, problem: str
) -> None:
    with pytest.raises(AnswerRefused, match=problem):
        answer(actor=people.editor, proposal=waiting, text=text)
    waiting.refresh_from_db()
    assert waiting.state == "waiting"


def test_what_may_be_tried_is_taken_and_the_rest_is_told(people: People, waiting: Proposal) -> None:
    bad = {**GOOD, "component": "harness.yaml"}
    found = answer(actor=people.editor, proposal=waiting, text=said(GOOD, bad))
    assert (len(found.edits), len(found.refused)) == (1, 1)


def test_people_may_rewrite_and_may_have_nothing_to_say(people: People, search: Search) -> None:
    first, second = answered(search, HANDED_IN), answered(search, HANDED_IN, round=1)
    whole = {**GOOD, "op": "set", "content": "Look, then answer."}
    assert answer(actor=people.editor, proposal=first, text=said(whole)).edits
    found = answer(actor=people.editor, proposal=second, text='{"edits": []}')
    assert (found.state, found.edits) == ("answered", [])


def test_only_editors_answer(people: People, waiting: Proposal) -> None:
    with pytest.raises(PermissionDenied):
        answer(actor=people.member, proposal=waiting, text=said())
    with pytest.raises(Http404):
        answer(actor=people.stranger, proposal=waiting, text=said())


def test_a_model_is_not_answered_for(people: People, search: Search) -> None:
    with pytest.raises(AnswerRefused, match="answered by its model"):
        answer(actor=people.editor, proposal=ask(search), text=said())


def test_a_question_that_is_still_being_written_is_not_handed_out(
    people: People, search: Search
) -> None:
    proposal = ask(search, HANDED_IN)
    for take in (
        lambda: handed_out(proposal),
        lambda: answer(actor=people.editor, proposal=proposal, text=said()),
    ):
        with pytest.raises(AnswerRefused, match="still being written"):
            take()


# --- the command ---------------------------------------------------------------------------------


def command(*arguments: Any, **options: Any) -> str:
    out = io.StringIO()
    call_command("proposals", *map(str, arguments), stdout=out, **options)
    return out.getvalue()


def test_the_command_lists_exports_and_answers(
    people: People, waiting: Proposal, tmp_path: Path
) -> None:
    assert command("list").startswith(f"{waiting.pk}\tsearch {waiting.search_id}")
    assert "No proposal waits" in command("list", search=waiting.search_id + 1)
    question, reply = tmp_path / "question.json", tmp_path / "answer.json"
    command("export", waiting.pk, to=question)
    assert json.loads(question.read_text()) == json.loads(command("export", waiting.pk))
    reply.write_text(said(GOOD, {**GOOD, "component": "harness.yaml"}))
    told = command("answer", waiting.pk, reply, user=people.editor.username)
    assert told.startswith("1 edits will be tried.\nRefused: component: ")
    assert "No proposal waits" in command("list")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("export",), "Name the proposal"),
        (("export", 999_999), "no proposal 999999"),
        (("answer", "ID"), "Name the file and who answers"),
        (("answer", "ID", "FILE", "--user", "nobody"), "no user 'nobody'"),
        (("answer", "ID", "gone.json", "--user", "EDITOR"), "cannot be read"),
        (("answer", "ID", "FILE", "--user", "VIEWER"), "may not edit"),
        (("answer", "ID", "FILE", "--user", "EDITOR"), "The answer cannot be read"),
    ],
)
def test_the_command_says_what_is_wrong(
    people: People,
    waiting: Proposal,
    tmp_path: Path,
    arguments: tuple[Any, ...],
    problem: str,
) -> None:
    file = tmp_path / "answer.json"
    file.write_text("none")
    named = {
        "ID": waiting.pk,
        "FILE": file,
        "EDITOR": people.editor.username,
        "VIEWER": people.member.username,
    }
    with pytest.raises(CommandError, match=problem):
        command(*(named.get(word, word) for word in arguments))
