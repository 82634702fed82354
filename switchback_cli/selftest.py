"""`selftest`: sends one event of each kind through the door and looks whether it has arrived.

For whoever has set a server up, or wires a producer to it: it goes the way that a producer's events
go, with a token of the project, and reads back what is stored. Nothing is assumed from an answer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from switchback_cli.account import project_id
from switchback_cli.errors import Ended
from switchback_cli.options import connect
from switchback_cli.speech import say

KINDS: Mapping[str, tuple[Any, Any]] = {
    "user": ("What is 2 + 2?", None),
    "turn": ("I will ask the calculator.", {"turn": 1}),
    "model_call": (
        [{"type": "text", "text": "calculator(2 + 2)"}],
        {"model": "selftest", "tokens_in": 12, "tokens_out": 7, "temperature": 0.0},
    ),
    "agent": ({"name": "calculating"}, None),
    "retrieval": ([{"type": "text", "text": "2 + 2 = 4"}], {"query": "sums", "documents": 1}),
    "tool_call": ({"name": "calculator", "arguments": {"expression": "2 + 2"}}, None),
    "observation": ("4 – naïve ☃ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢", {"exact": 12345678901234567890, "ratio": 0.1}),
    "verdict": ("It is right.", {"criterion": "correct", "value": 1}),
    "score": (None, {"value": 1.0}),
    "error": ("Nothing went wrong; this is how an error would look.", {"code": "none"}),
    "something_else": ("Kinds are the producer's own words.", None),
}
"""Content and data of an event of each kind that the trace page knows, and of one that it does not.
"""


def events_of(rollout: str) -> list[dict[str, Any]]:
    now = datetime.now(UTC).isoformat()
    made = []
    for seq, (kind, (content, data)) in enumerate(KINDS.items(), start=1):
        event: dict[str, Any] = {"rollout": rollout, "id": f"{seq}-{kind}", "seq": seq}
        event |= {"kind": kind, "started_at": now, "content": content}
        made.append(event if data is None else {**event, "data": data})
    return made


def selftest(context: typer.Context) -> None:
    """Sends one event of each kind to a rollout of its own, twice, and compares what is stored."""
    at = connect(context)
    project = project_id(at.server, at.project)
    rollout = f"selftest-{secrets.token_hex(6)}"
    sent = events_of(rollout)
    wrong: list[str] = []

    def send(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        body = "".join(f"{json.dumps(event)}\n" for event in events).encode()
        answer: Mapping[str, Any] = at.server.send(
            f"projects/{project}/ingest", body, "application/x-ndjson"
        )
        return answer

    def expect(what: str, is_so: bool, found: object) -> None:
        say(at.console, f"{'ok  ' if is_so else 'FAIL'}  {what}{'' if is_so else f': {found}'}")
        if not is_so:
            wrong.append(what)

    first = send(sent)
    expect(f"{len(sent)} events taken", first["accepted"] == len(sent), first)
    again = send(sent)
    expect("sent again, none taken twice", again["duplicate"] == len(sent), again)
    other = send([{**sent[0], "content": "something else"}])
    reasons = [item.get("reason_kind") for item in other["rejected"]]
    expect("other content under a known id is refused", reasons == ["id_conflict"], other)
    stored = at.server.get(f"projects/{project}/imported", rollout=rollout)
    found = [_told(one["event"]) for one in stored["events"]]
    for event in sent:
        is_there = found.count(_told(event)) == 1
        expect(f"{event['kind']} stored as sent", is_there, "not found as it was sent")
    expect("nothing else is stored", len(found) == len(sent), f"{len(found)} events")
    say(at.console, f"See it at {stored['html_url']}")
    if wrong:
        raise Ended(1)


def _told(event: Mapping[str, Any]) -> str:
    names = ("id", "seq", "kind", "content", "data")
    return json.dumps({name: event.get(name) for name in names}, sort_keys=True)
