"""Traces taken away and brought back: ATIF, training traces, JSON lines."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.events.indexing import index_waiting
from orchestrator.events.search import search_events
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, TokenRow
from orchestrator.traces.importing import FileRefused, import_file
from orchestrator.traces.models import OutsideEvent, RefusedItem
from tests.base import People
from tests.web.build import make_rollout, make_run, make_trace, tasks_of

pytestmark = pytest.mark.django_db

ATIF = {
    "schema_version": "ATIF-v1.6",
    "session_id": "outside-1",
    "agent": {"name": "mini", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "find the lighthouse"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "tool_calls": [
                {"tool_call_id": "a", "function_name": "grep", "arguments": {"for": "beacon"}}
            ],
            "observation": {"results": [{"source_call_id": "a", "content": "coast.txt"}]},
            "metrics": {"prompt_tokens": 12345678901234567890, "cost_usd": 0.10},
        },
    ],
}


@pytest.fixture
def rollout(people: People) -> Rollout:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    make_trace(rollout)
    return rollout


def download(people: People, rollout_id: int, name: str, status: int = 200) -> str:
    client = Client()
    client.force_login(people.member)
    answer = client.get(reverse(f"web:{name}", args=[people.project.pk, rollout_id]))
    assert answer.status_code == status
    return bytes(answer.getvalue()).decode()


def bring(project: Project, content: bytes | str, name: str = "file.json") -> Rollout:
    content = content.encode() if isinstance(content, str) else content
    imported = import_file(project=project, name=name, content=content)
    assert imported.outcome.rejected == []
    index_waiting()
    [pk] = imported.rollouts
    return Rollout.objects.get(pk=pk)


def test_atif_is_shown_searched_and_given_back(people: People) -> None:
    brought = bring(people.project, json.dumps(ATIF))
    assert json.loads(download(people, brought.pk, "rollout_atif")) == ATIF
    assert len(search_events(people.project.pk, "beacon")) == 1
    page = download(people, brought.pk, "rollout")
    assert "find the lighthouse" in page and "coast.txt" in page
    again = import_file(project=people.project, name="x", content=json.dumps(ATIF).encode())
    assert (again.outcome.accepted, again.outcome.duplicate) == (0, 5)
    assert again.rollouts == [brought.pk]


def test_trajectories_of_one_session_stay_apart(people: People) -> None:
    other = {**ATIF, "notes": "the second part"}
    first, second = (bring(people.project, json.dumps(one)) for one in (ATIF, other))
    assert first.pk != second.pk
    assert bring(people.project, json.dumps(other)).pk == second.pk
    assert json.loads(download(people, second.pk, "rollout_atif")) == other


def test_our_own_rollout_leaves_as_atif_and_comes_back(rollout: Rollout, people: People) -> None:
    document = download(people, rollout.pk, "rollout_atif")
    read = json.loads(document)
    assert read["extra"]["switchback"]["rollout"] == rollout.pk
    assert [step["step_id"] for step in read["steps"]] == list(range(1, len(read["steps"]) + 1))
    brought = bring(people.project, document)
    assert brought.pk != rollout.pk
    assert json.loads(download(people, brought.pk, "rollout_atif")) == read


def test_training_traces_carry_the_tokens_there_and_back(rollout: Rollout, people: People) -> None:
    lines = download(people, rollout.pk, "rollout_training_trace")
    assert json.loads(lines.splitlines()[0])["schema_version"] == 1
    brought = bring(people.project, lines, "t.jsonl")
    assert download(people, brought.pk, "rollout_training_trace") == lines

    def tokens(one: Rollout) -> list[tuple[object, ...]]:
        rows = TokenRow.objects.filter(rollout=one)
        return [(row.ids, [list(run) for run in row.kinds], row.logprobs) for row in rows]

    assert tokens(brought) == tokens(rollout)
    bring(people.project, lines, "t.jsonl")
    assert TokenRow.objects.filter(rollout=brought).count() == 1


def test_without_tokens_no_training_trace_is_made_up(rollout: Rollout, people: People) -> None:
    rollout.token_rows.all().delete()
    text = download(people, rollout.pk, "rollout_training_trace", status=409)
    assert "none are stored" in text


def test_the_download_as_json_lines_comes_back(rollout: Rollout, people: People) -> None:
    lines = download(people, rollout.pk, "rollout_jsonl").splitlines()
    brought = bring(people.project, "\n".join(lines), "t.jsonl")
    bodies = OutsideEvent.objects.filter(owner__rollout=brought).values_list("body", flat=True)
    got = [json.loads(body) for body in bodies]
    sent = [json.loads(line) for line in lines]
    assert [e["content"] for e in got] == [e["payload"] for e in sent]
    assert [(e["kind"], e["started_at"]) for e in got] == [(e["kind"], e["at"]) for e in sent]


def test_a_bad_line_spoils_no_other(people: People) -> None:
    good = {"rollout": "r", "id": "a", "seq": 1, "kind": "turn", "content": "hi"}
    content = f"{json.dumps(good)}\n{{nope\n{json.dumps({**good, 'id': 'b'})}\n".encode()
    imported = import_file(project=people.project, name="events.jsonl", content=content)
    assert imported.outcome.accepted == 2
    assert [item.reason_kind for item in imported.outcome.rejected] == ["bad_json"]
    assert RefusedItem.objects.get().index == 1
    brought = Rollout.objects.get(pk=imported.rollouts[0])
    lines = download(people, brought.pk, "rollout_jsonl").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a", "b"]
    assert "event by event" in download(people, brought.pk, "rollout_atif", status=409)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b" \n", "no event"),
        (b"{", "no JSON"),
        (b"[]", "no event"),
        (b'{"schema_version": "ATIF-v1.6", "steps": []}', "at least one step"),
        (b'{"turns": []}', "at least one model call"),
    ],
)
def test_what_is_no_trace_is_refused_whole(people: People, content: bytes, reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        import_file(project=people.project, name="x.json", content=content)
    assert not OutsideEvent.objects.exists()
