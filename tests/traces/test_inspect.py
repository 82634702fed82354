"""Logs of Inspect: packed as its versions pack them, in JSON, cut short, and hostile."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from backports.zstd import zipfile as zstd_zipfile
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.events.indexing import index_waiting
from orchestrator.events.search import search_events
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from orchestrator.runs.models import Rollout
from orchestrator.traces.exact import dump, parse
from orchestrator.traces.foreign import NotReadable
from orchestrator.traces.importing import FileRefused, import_file
from orchestrator.traces.inspect_logs import events_of_log, events_of_sample
from orchestrator.traces.queries import means_of, outside_rollout
from tests.base import People, make_project

LONG = "the lighthouse keeper's long log " * 10
HEADER = {
    "version": 2,
    "status": "success",
    "eval": {"task": "find_it", "eval_id": "E1", "model": "m", "created": "2026-01-02T03:04:05Z"},
    "plan": {"steps": []},
    "results": {"total_samples": 2},
}
SAMPLE: dict[str, Any] = {
    "id": "beacon",
    "epoch": 1,
    "input": "Find it.",
    "target": "here",
    "messages": [
        {"id": "s", "role": "system", "content": "Be brief."},
        {"id": "u", "role": "user", "content": [{"type": "text", "text": "Find it."}]},
        {
            "id": "a",
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}}],
        },
        {
            "id": "t",
            "role": "tool",
            "tool_call_id": "c1",
            "function": "bash",
            "content": "attachment://0123456789abcdef0123456789abcdef",
        },
    ],
    "events": [
        {"event": "span_begin", "id": "x"},
        {
            "event": "model",
            "timestamp": "2026-01-02T03:04:06Z",
            "completed": "2026-01-02T03:04:07Z",
            "input_refs": [[0, 2]],
            "output": {
                "choices": [{"message": {"id": "a", "role": "assistant"}}],
                "usage": {"input_tokens": 11, "output_tokens": 5},
            },
        },
        {
            "event": "tool",
            "id": "c1",
            "function": "bash",
            "timestamp": "2026-01-02T03:04:07Z",
            "completed": "2026-01-02T03:04:08Z",
        },
        {"event": "info", "data": "half way", "timestamp": "2026-01-02T03:04:08Z"},
    ],
    "attachments": {"0123456789abcdef0123456789abcdef": LONG},
    "scores": {
        "match": {"value": "C", "answer": "here", "explanation": "as wanted"},
        "speed": {"value": 0.25},
        "notes": {"value": {"a": 1}},
    },
    "model_usage": {"m": {"input_tokens": 11}},
    "store": {},
}


def archive_of(files: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zstd_zipfile.ZipFile(packed, "w", method) as archive:
        for path, value in files.items():
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            archive.writestr(path, text)
    return packed.getvalue()


def log_of(method: int = zipfile.ZIP_DEFLATED, header: str = "header.json") -> bytes:
    second = {**SAMPLE, "id": 7, "epoch": 2, "attachments": {}, "scores": None}
    files = {
        "_journal/summaries/1.json": [],
        "samples/beacon_epoch_1.json": SAMPLE,
        "samples/7_epoch_2.json": second,
        header: HEADER,
        "reductions.json": [],
    }
    return archive_of(files, method)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "content",
    [
        log_of(),
        log_of(zstd_zipfile.ZIP_ZSTANDARD),
        log_of(header="_journal/start.json"),
    ],
    ids=["deflate", "zstandard", "unfinished"],
)
def test_a_packed_log_becomes_a_rollout_for_each_sample(people: People, content: bytes) -> None:
    imported = import_file(project=people.project, name="x.eval", content=content)
    assert (imported.outcome.rejected, imported.outcome.duplicate) == ([], 0)
    assert len(imported.rollouts) == 2
    owner = outside_rollout(people.project.pk, "find_it/beacon/1 E1")
    assert owner is not None
    told = [json.loads(body) for body in owner.events.values_list("body", flat=True)]
    assert [(e["kind"], e.get("parent"), e.get("name")) for e in told] == [
        ("trajectory", None, "find_it"),
        ("system", None, None),
        ("user", None, None),
        ("model_call", None, None),
        ("tool_call", "message-3", "bash"),
        ("observation", "message-3/call-1", "bash"),
        ("info", None, None),
        ("score", None, "match"),
        ("score", None, "speed"),
        ("score", None, "notes"),
    ]
    assert (told[2]["content"], told[5]["content"]) == ("Find it.", LONG)
    assert (told[3]["started_at"], told[4]["ended_at"]) == (
        "2026-01-02T03:04:06Z",
        "2026-01-02T03:04:08Z",
    )
    assert means_of(owner) == {"match": 1.0, "speed": 0.25}
    rollout = Rollout.objects.get(pk=owner.rollout_id)
    assert (rollout.tokens_in, rollout.tokens_out) == (11, 5)
    index_waiting()
    assert len(search_events(people.project.pk, "lighthouse", stream_id=rollout.stream_id)) == 1
    again = import_file(project=people.project, name="x.eval", content=content)
    assert (again.outcome.accepted, again.outcome.duplicate) == (0, imported.outcome.accepted)
    assert list(again.rollouts) == list(imported.rollouts)


@pytest.mark.django_db
def test_a_log_in_json_says_the_same() -> None:
    project = make_project()
    packed = import_file(project=project, name="x.eval", content=log_of())
    samples = [SAMPLE, {**SAMPLE, "id": 7, "epoch": 2, "attachments": {}, "scores": None}]
    content = json.dumps({**HEADER, "samples": samples}).encode()
    plain = import_file(project=project, name="x.json", content=content)
    assert plain.outcome.duplicate == packed.outcome.accepted
    assert sorted(plain.rollouts) == sorted(packed.rollouts)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (archive_of({"a.txt": b"x"}), "no log of Inspect"),
        (archive_of({"header.json": HEADER}), "no log of Inspect"),
        (archive_of({"samples/1.json": b"{"}), "samples/1.json: is no JSON"),
        (archive_of({"samples/1.json": b"[" * 9_000}), "nested too deeply"),
        (archive_of({"samples/1.json": [1]}), "a sample is an object"),
        (archive_of({"../samples/1.json": SAMPLE}), "samples/1.json"),
        (log_of()[:-30], "not a zip"),
        (json.dumps(HEADER).encode(), "no samples"),
        (json.dumps({**HEADER, "samples": [{"id": 1}]}).encode(), "samples[0]"),
    ],
)
def test_what_is_no_log_is_refused_with_its_place(content: bytes, said: str) -> None:
    with pytest.raises(FileRefused) as refused:
        import_file(project=make_project(), name="x.eval", content=content)
    assert said in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "role", "content", "event", "output", "tool_calls", "x"]), inner
        )
    ),
    max_leaves=6,
)


@settings(max_examples=40)
@given(
    sample=st.fixed_dictionaries(
        {"id": JSON, "epoch": JSON},
        optional={"messages": st.lists(JSON, max_size=3), "events": JSON, "scores": JSON},
    )
)
def test_any_sample_is_read_or_refused(sample: Any) -> None:
    try:
        events = events_of_sample(HEADER, parse(json.dumps(sample)), "s")
    except NotReadable:
        return
    assert len({event["id"] for event in events}) == len(events)
    dump(events)


def test_ids_are_the_same_each_time() -> None:
    log = parse(json.dumps({**HEADER, "samples": [SAMPLE]}))
    assert events_of_log(log) == events_of_log(log)


@pytest.mark.django_db
def test_a_log_comes_in_by_the_api_and_by_the_command(people: People, tmp_path: Path) -> None:
    issued = issue_token(
        actor=people.editor, project_id=people.project.pk, name="t", role=Role.EDITOR
    )

    def send(content: bytes) -> Any:
        return Client().post(
            reverse("api:trace_files", args=[people.project.pk]) + "?name=run.eval",
            content,
            content_type="application/octet-stream",
            headers={"Authorization": f"Bearer {issued.secret}"},
        )

    told = send(log_of()).json()
    assert (told["accepted"] > 0, told["rejected"], len(told["rollouts"])) == (True, [], 2)
    assert told["rollouts"][0]["html_url"].startswith("http")
    refused = send(b"PK\x03\x04 no zip")
    assert (refused.status_code, refused["Content-Type"]) == (422, "application/problem+json")
    path = tmp_path / "run.eval"
    path.write_bytes(log_of())
    out = io.StringIO()
    call_command("import_traces", str(path), "--project", str(people.project.pk), stdout=out)
    assert f"0 accepted, {told['accepted']} known" in out.getvalue()
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(CommandError, match=r"run\.eval"):
        call_command("import_traces", str(path), "--project", str(people.project.pk))
