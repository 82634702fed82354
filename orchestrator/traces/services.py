"""Takes events from outside into the log: each accepted, a resend, or refused with its reason.

What is accepted is committed before the answer, `EVENTS_AT_ONCE` in a transaction: what a request
costs is mostly what its transactions cost. Events of one rollout are written by one caller at a
time: the rows of the streams are locked first, in order.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from orchestrator import measures
from orchestrator.events import indexing
from orchestrator.events.models import Stream
from orchestrator.events.rows import insert_rows
from orchestrator.events.services import NewEvent, append_many
from orchestrator.projects import storage
from orchestrator.projects.models import Project
from orchestrator.traces.exact import dump, parse
from orchestrator.traces.models import OutsideEvent, OutsideRollout, RefusedItem
from orchestrator.traces.owners import digest, owners_of
from orchestrator.traces.reading import (
    PREVIEW_CHARS,
    Item,
    Refused,
    flags_of,
    instant,
    is_plain,
)

KIND = "outside"
"""Kind of these events in the log."""
EVENTS_AT_ONCE = 1_000
"""Of one transaction."""
_DATA_URL_CHARS = 400_000
_SAID_CHARS = 20_000
_MOST_TOKENS = 2_000_000_000
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What no text column takes."""
Resolve = Callable[[str], Project | None]
"""The project that an event names, if whoever sends it may write there."""
Named = dict[str, list[Item]]
"""Items by the name of their rollout, as JSON."""


@dataclass
class Outcome:
    accepted: int = 0
    duplicate: int = 0
    rejected: list[Refused] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "duplicate": self.duplicate,
            "rejected": [refused.as_json() for refused in self.rejected],
        }


def ingest(
    *, project: Project, items: Iterable[Item | Refused], resolve: Resolve | None = None
) -> Outcome:
    """Stores what can be stored, in transactions of its own. Raises StorageFull, django.db.Error.

    Words are found a little later: see `orchestrator.events.indexing`.
    """
    storage.check(project.pk)
    outcome = Outcome()
    groups: dict[int, Named] = {}
    projects = {project.pk: project}
    refused: list[tuple[int, Refused, str]] = []
    for item in items:
        if isinstance(item, Refused):
            refused.append((project.pk, item, ""))
            continue
        target = _target(item, project, resolve)
        if target is None:
            text = "no such project, or no right to write there"
            refused.append((project.pk, _refusal(item, "unknown_project", text), ""))
            continue
        projects[target.pk] = target
        named = groups.setdefault(target.pk, defaultdict(list))
        named[dump(item.event["rollout"])].append(item)
    for project_id, named in groups.items():
        for part in _parts(named):
            with transaction.atomic():
                owners = owners_of(projects[project_id], list(part))
                pairs = _stored([(owners[name], own) for name, own in part.items()], outcome)
            refused += [(project_id, *pair) for pair in pairs]
    if outcome.accepted:
        indexing.ask()
    if refused:
        _keep(refused)
    outcome.rejected = sorted((item for _, item, _ in refused), key=lambda item: item.index)
    measures.INGESTED.labels("accepted").inc(outcome.accepted)
    measures.INGESTED.labels("duplicate").inc(outcome.duplicate)
    measures.INGESTED.labels("refused").inc(len(refused))
    return outcome


def _keep(refused: Sequence[tuple[int, Refused, str]]) -> None:
    RefusedItem.objects.bulk_create(
        [
            RefusedItem(
                project_id=project_id,
                index=item.index,
                reason_kind=item.reason_kind,
                detail=item.detail,
                body=item.body if item.body.isascii() else json.dumps(item.body),
                stored_body=stored,
            )
            for project_id, item, stored in refused
        ],
        batch_size=200,
    )


def _parts(named: Named) -> Iterator[Named]:
    part: Named = {}
    room = EVENTS_AT_ONCE
    for name, items in named.items():
        at = 0
        while at < len(items):
            part[name] = items[at : at + room]
            at += len(part[name])
            room -= len(part[name])
            if not room:
                yield part
                part, room = {}, EVENTS_AT_ONCE
    if part:
        yield part


def _target(item: Item, project: Project, resolve: Resolve | None) -> Project | None:
    named = item.event.get("project")
    if named in (None, ""):
        return project
    if not isinstance(named, str) or resolve is None:
        return None
    return resolve(named)


def _refusal(item: Item, reason: str, detail: str) -> Refused:
    external = item.event["id"]
    shown = external if isinstance(external, str) else dump(external)
    return Refused(item.index, reason, detail, shown, item.body)


def _stored(
    groups: Sequence[tuple[OutsideRollout, list[Item]]], outcome: Outcome
) -> list[tuple[Refused, str]]:
    """Appends what is new; what is refused, with what is stored under its id."""
    streams = [owner.rollout.stream_id for owner, _ in groups]
    list(Stream.objects.select_for_update().filter(pk__in=streams).order_by("pk").only("pk"))
    keyed = [
        (owner, [(digest(dump(item.event["id"])), item) for item in items])
        for owner, items in groups
    ]
    known = _known([(owner.pk, key) for owner, items in keyed for key, _ in items])
    refused: list[tuple[Refused, str]] = []
    rows: dict[int, list[OutsideEvent]] = {}
    batches: dict[int, list[NewEvent]] = {}
    tokens: dict[int, tuple[int, int]] = {}
    for owner, items in keyed:
        fresh: list[tuple[OutsideEvent, NewEvent]] = []
        read = written = 0
        for key, item in items:
            stored = known.get((owner.pk, key))
            if stored is None:
                known[owner.pk, key] = item.body
                fresh.append(_made(owner, key, item))
                read, written = read + item.tokens[0], written + item.tokens[1]
            elif stored == item.body or parse(stored) == parse(item.body):
                outcome.duplicate += 1
            else:
                text = "an event of this id has other content; the first one stays"
                refused.append((_refusal(item, "id_conflict", text), stored))
        if fresh:
            stream_id = owner.rollout.stream_id
            rows[stream_id] = [row for row, _ in fresh]
            batches[stream_id] = [event for _, event in fresh]
            tokens[stream_id] = (read, written)
    if not batches:
        return refused
    last_seqs = append_many(batches=batches, words_later=True)
    for stream_id, made in rows.items():
        for seq, row in enumerate(made, start=last_seqs[stream_id] - len(made) + 1):
            row.seq = seq
    everything = [row for made in rows.values() for row in made]
    _insert(everything)
    outcome.accepted += len(everything)
    _tell(groups, batches, last_seqs, tokens)
    return refused


_COLUMNS = (
    *("owner_id", "key", "parent_key", "position", "seq", "body"),
    *("started_at", "ended_at", "flags"),
)


def _insert(rows: Sequence[OutsideEvent]) -> None:
    """As plain SQL: building it from the model costs three times what running it does."""
    adapted = connection.ops.adapt_datetimefield_value
    values = (
        (
            *(row.owner_id, row.key, row.parent_key, row.position, row.seq, row.body),
            *(adapted(row.started_at), adapted(row.ended_at), json.dumps(row.flags)),
        )
        for row in rows
    )
    insert_rows("traces_outsideevent", _COLUMNS, values)


def _known(wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], str]:
    """Stored bodies by owner and key, by the index over both."""
    found: dict[tuple[int, str], str] = {}
    with connection.cursor() as cursor:
        for start in range(0, len(wanted), 400):
            part = wanted[start : start + 400]
            marks = ", ".join(["(%s, %s)"] * len(part))
            cursor.execute(
                f"WITH v (owner_id, key) AS (VALUES {marks})"
                " SELECT e.owner_id, e.key, e.body FROM v JOIN traces_outsideevent e"
                " ON e.owner_id = v.owner_id AND e.key = v.key",
                [value for pair in part for value in pair],
            )
            found |= {(owner, key): body for owner, key, body in cursor.fetchall()}
    return found


_TOLD = (
    "UPDATE runs_rollout SET n_steps = %s, answer = %s, ended_at = %s,"
    " tokens_in = CASE WHEN tokens_in > %s THEN %s ELSE tokens_in + %s END,"
    " tokens_out = CASE WHEN tokens_out > %s THEN %s ELSE tokens_out + %s END WHERE id = %s"
)


def _tell(
    groups: Sequence[tuple[OutsideRollout, list[Item]]],
    batches: Mapping[int, Sequence[NewEvent]],
    last_seqs: Mapping[int, int],
    tokens: Mapping[int, tuple[int, int]],
) -> None:
    """Their rollouts show the last thing said, how much there is, and what models counted."""
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    values = []
    for owner, _ in groups:
        stream_id = owner.rollout.stream_id
        if stream_id in batches:
            said = _UNSTORABLE.sub("\ufffd", batches[stream_id][-1].payload["said"])
            counted: list[int] = []
            for number in tokens[stream_id]:
                number = min(number, _MOST_TOKENS)
                counted += [_MOST_TOKENS - number, _MOST_TOKENS, number]
            steps = min(32_767, last_seqs[stream_id])
            values.append([steps, said, now, *counted, owner.rollout_id])
    with connection.cursor() as cursor:
        cursor.executemany(_TOLD, values)


def _made(owner: OutsideRollout, key: str, item: Item) -> tuple[OutsideEvent, NewEvent]:
    event = item.event
    started, started_flags = instant(event.get("started_at"))
    ended, ended_flags = instant(event.get("ended_at"))
    is_whole = is_plain(item.body)
    flags = started_flags | ended_flags
    if not is_whole:
        flags |= flags_of(event)
    parent = event.get("parent")
    row = OutsideEvent(
        owner=owner,
        key=key,
        parent_key="" if parent in (None, "") else digest(dump(parent)),
        position=item.seq,
        body=item.body,
        started_at=started,
        ended_at=ended,
        flags=sorted(flags),
    )
    hidden = [0]

    def shortened(text: str) -> str:
        limit = _DATA_URL_CHARS if text.startswith("data:") else PREVIEW_CHARS
        hidden[0] += max(0, len(text) - limit)
        return text[:limit]

    said = said_in(event.get("content"))
    payload = {
        "name": item.text("kind"),
        "body": item.body if is_whole else dump(event, shortened),
        "said": said[:_SAID_CHARS],
        "hidden_chars": hidden[0],
        "flags": row.flags,
        "position": item.seq,
    }
    return row, NewEvent(KIND, payload)


def said_in(content: Any) -> str:
    """Content as a judge reads it: a text as it is, anything else as JSON."""
    if isinstance(content, str):
        return content
    return "" if content is None else dump(content)
