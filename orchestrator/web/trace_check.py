"""Checks of traces from outside, through the doors that users have."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

from django.test import Client
from django.urls import reverse

from orchestrator.events.indexing import index_waiting
from orchestrator.events.search import search_events
from orchestrator.projects.models import Membership, Project, Role, User
from orchestrator.runs.transcripts import transcript_of
from orchestrator.traces.exact import dump, parse
from orchestrator.traces.models import OutsideEvent, OutsideRollout
from orchestrator.traces.queries import stamp
from orchestrator.web.text import cell
from orchestrator.web.trace_media import split_media


class _Raw(str):
    """JSON text that is sent as it is."""


def expand(value: Any) -> Any:
    """Generated values in their full length; what must be sent as it is becomes `_Raw`."""
    if isinstance(value, list):
        return [expand(part) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((form, given),) = value.items()
        match form:
            case "$repeat":
                return given["text"] * given["times"]
            case "$join":
                return "".join(expand(part) for part in given)
            case "$codepoints":
                return "".join(map(chr, given))
            case "$number" | "$raw":
                return _Raw(given)
            case "$nest":
                leaf = expand(given["leaf"])
                for _ in range(given["depth"]):
                    leaf = {given["key"]: leaf}
                return leaf
            case "$bytes":
                return bytes.fromhex(given)
            case "$lines":
                return [expand(part) for part in given]
    return {key: expand(part) for key, part in value.items()}


def sent(value: Any) -> str:
    """JSON of an expanded value, iteratively deep."""
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {sent(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(sent, value)) + "]"
    return json.dumps(value)


class _Visible(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def visible_text(html: str) -> str:
    reader = _Visible()
    reader.feed(html)
    return "".join(reader.parts)


class Checker:
    """One trace, in projects of its own."""

    def __init__(self, event: Any) -> None:
        self.events: list[Any] = event if isinstance(event, list) else [event]
        self.user = User.objects.create_user(username=f"check-{User.objects.count()}")
        self.client = Client(SERVER_NAME="localhost")
        self.client.force_login(self.user)
        self.projects: dict[str, Project] = {"": self._project("traces under check")}
        for one in self.events:
            name = one.get("project") if isinstance(one, dict) else None
            if name and name not in self.projects:
                self.projects[name] = self._project(name)

    def _project(self, name: str) -> Project:
        project = Project.objects.create(name=name)
        Membership.objects.create(user=self.user, project=project, role=Role.ADMIN)
        return project

    def faults(self, expect: Mapping[str, Any], one_by_one: bool) -> list[str]:
        """What is not as expected; empty when all is."""
        lines = [e if isinstance(e, bytes) else sent(e).encode() for e in self.events]
        told = self._send(lines) if not one_by_one else self._send_each(lines)
        owner = self._owner(expect.get("page_of", ""))
        found = []
        for key, wanted in expect.items():
            check: Callable[..., Any] | None = getattr(self, f"_check_{key}", None)
            if check is None:
                continue
            try:
                found += [f"{key}: {text}" for text in check(wanted, told, owner)]
            except Exception as error:  # boundary: a check that fails is a finding
                found.append(f"{key}: {type(error).__name__}: {error}"[:300])
        return found

    def _send(self, lines: Sequence[bytes]) -> dict[str, Any]:
        response = self.client.post(
            reverse("api:ingest", args=[self.projects[""].pk]),
            b"\n".join(lines),
            content_type="application/x-ndjson",
        )
        told: dict[str, Any] = json.loads(response.content)
        return told

    def _send_each(self, lines: Sequence[bytes]) -> dict[str, Any]:
        total: dict[str, Any] = {"accepted": 0, "duplicate": 0, "rejected": []}
        for index, line in enumerate(lines):
            told = self._send([line])
            total["accepted"] += told["accepted"]
            total["duplicate"] += told["duplicate"]
            total["rejected"] += [{**one, "index": index} for one in told["rejected"]]
        return total

    def _owner(self, project: str) -> OutsideRollout | None:
        chosen = self.projects.get(project, self.projects[""])
        owners = OutsideRollout.objects.filter(project__in=[p.pk for p in self.projects.values()])
        if project:
            owners = owners.filter(project=chosen)
        return owners.select_related("rollout__task", "rollout__run").first()

    def _api(self, owner: OutsideRollout, form: str) -> str:
        response = self.client.get(
            reverse("api:imported", args=[owner.project_id]),
            {"rollout": json.loads(owner.name), "as": form},
        )
        return b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]

    def _report(self, owner: OutsideRollout) -> Any:
        return json.loads(self._api(owner, "json"), parse_constant=_refused)

    # One function for each expectation

    def _check_ingest(self, wanted: Any, told: Any, owner: Any) -> list[str]:
        faults = [
            f"{name} is {told.get(name)}, expected {wanted[name]}"
            for name in ("accepted", "duplicate")
            if name in wanted and told.get(name) != wanted[name]
        ]
        for want in wanted.get("rejected", []):
            if not any(want.items() <= one.items() for one in told["rejected"]):
                faults.append(f"no {want} among {told['rejected']}")
        return faults

    def _check_read_back(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        report = parse(self._api(owner, "json"))["events"]
        lines = [parse(line) for line in self._api(owner, "jsonl").splitlines()]
        if [one["event"] for one in report] != lines:
            return ["API and JSON lines differ"]
        if wanted != "exact":
            fields = parse(json.dumps(wanted))
            return [] if fields.items() <= lines[0].items() else [f"is {dump(lines[0])[:300]}"]
        stored = [parse(dump(parse(sent(e)))) for e in self.events if isinstance(e, dict)]
        return [f"lost {dump(e)[:200]}" for e in stored if e not in lines]

    def _check_order(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        order = [one["event"]["id"] for one in self._report(owner)["events"]]
        return [] if order == wanted else [f"is {order}, expected {wanted}"]

    def _check_live(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        url = reverse("web:rollout_index", args=[owner.project_id, owner.rollout_id])
        seqs = json.loads(self.client.get(url).content)["seqs"]
        rows = dict(owner.events.values_list("seq", "body"))
        shown = [json.loads(rows[seq])["id"] for seq in (seqs or sorted(rows))]
        return [] if shown == wanted["final_order"] else [f"is {shown}"]

    def _check_parents(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        events = [one["event"] for one in self._report(owner)["events"]]
        parents = {one["id"]: one.get("parent") for one in events}
        return [] if parents == wanted else [f"are {parents}"]

    def _check_count(self, wanted: Any, told: Any, owner: Any) -> list[str]:
        ids = [project.pk for project in self.projects.values()]
        count = OutsideEvent.objects.filter(owner__project__in=ids).count()
        return [] if count == wanted else [f"is {count}, expected {wanted}"]

    def _check_instants(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        stored = {json.loads(e.body)["id"]: e for e in owner.events.all()}
        shown = {i: [stamp(stored[i].started_at), stamp(stored[i].ended_at)] for i in wanted}
        return [] if shown == wanted else [f"are {shown}"]

    def _check_duration_ms(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        events = self._report(owner)["events"]
        shown = {one["event"]["id"]: one["stored"]["duration_ms"] for one in events}
        return [f"{i} is {shown[i]}" for i in wanted if shown[i] != wanted[i]]

    def _check_flags(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        flags = self._report(owner)["flags"]
        is_met = set(wanted) <= set(flags) if wanted else not flags
        return [] if is_met else [f"are {flags}, expected {wanted}"]

    def _check_api(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        self._report(owner)
        return []

    def _check_mean(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        means = self._report(owner)["means"]
        return [f"{n} is {means.get(n)}" for n, v in wanted.items() if means.get(n) != v]

    def _check_sha256_utf8(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        contents = self._contents(owner)
        return [i for i, v in wanted.items() if hashlib.sha256(contents[i]).hexdigest() != v]

    def _check_utf8_bytes(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        contents = self._contents(owner)
        return [f"{i} has {len(contents[i])}" for i, v in wanted.items() if len(contents[i]) != v]

    def _contents(self, owner: OutsideRollout) -> dict[str, bytes]:
        events = [json.loads(body) for body in owner.events.values_list("body", flat=True)]
        return {e["id"]: str(e["content"]).encode(errors="surrogatepass") for e in events}

    def _check_search(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        stream = owner.rollout.stream_id
        index_waiting()
        counts = [len(search_events(owner.project_id, w["q"], stream_id=stream)) for w in wanted]
        return [
            f"{w['q']}: {n} hits" for w, n in zip(wanted, counts, strict=True) if n != w["hits"]
        ]

    def _check_judge_sees(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        said = transcript_of(owner.rollout).steps[0].output
        return [] if json.loads(said) == json.loads(wanted) else [f"is {said[:200]}"]

    def _check_csv(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        row = next(csv.DictReader(io.StringIO(self._api(owner, "csv"), newline="")))
        start = wanted["fields_start_with"]
        return [f"{n} is {row[n]!r}" for n in wanted["fields"] if not row[n].startswith(start)]

    def _check_cell(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        body = owner.events.order_by("position", "seq").values_list("body", flat=True)[0]
        content = split_media(json.loads(body).get("content"))[0]
        shown = cell(content if isinstance(content, str) else json.dumps(content))
        faults = [f"has {len(shown)}"] if len(shown) > wanted.get("max_chars", 10**9) else []
        if "text" in wanted and shown != expand(wanted["text"]):
            faults.append(f"is {shown!r}")
        return faults + _lacks_and_has(wanted, shown, "text")

    def _check_page(self, wanted: Any, told: Any, owner: OutsideRollout) -> list[str]:
        place = [owner.project_id, owner.rollout_id]
        first = self.client.get(reverse("web:rollout", args=place))
        seqs = ",".join(map(str, owner.events.values_list("seq", flat=True)))
        cards = reverse("web:rollout_cards", args=place)
        more = self.client.get(cards, {"seqs": seqs, "whole": "1"})
        if (first.status_code, more.status_code) != (200, 200):
            return [f"answers {first.status_code}, {more.status_code}"]
        html = more.content.decode()
        faults = _lacks_and_has(wanted, visible_text(html), "text")
        faults += _lacks_and_has(wanted, html, "html")
        most = wanted.get("first_response_max_bytes", 10**9)
        size = len(first.content)
        return faults + ([f"first answer has {size} bytes"] if size > most else [])


def _lacks_and_has(wanted: Mapping[str, Any], text: str, name: str) -> list[str]:
    has = [f"lacks {w!r}" for w in map(expand, wanted.get(f"{name}_has", [])) if w not in text]
    lacks = [f"has {w!r}" for w in map(expand, wanted.get(f"{name}_lacks", [])) if w in text]
    return has + lacks


def _refused(token: str) -> Any:
    raise ValueError(f"{token} is not strict JSON")
