"""Files of traces from elsewhere: what they are is seen in them, and they go in as events do.

Accepted: an ATIF document, TrainingTraces of OpenEnv (one in JSON, or one a line), logs of Inspect
(`.eval` and JSON), the JSON lines that a trace's download gives, and events as the ingest address
takes them. All of it passes through
`services.ingest`: resends are folded, each item is accepted or refused with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from django.db import transaction

from orchestrator.projects import storage
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, TokenRow
from orchestrator.traces import foreign, inspect_logs
from orchestrator.traces.exact import TooDeep, dump, parse
from orchestrator.traces.queries import outside_rollout
from orchestrator.traces.reading import Item, Refused, checked, read_item
from orchestrator.traces.services import Outcome, ingest
from training.errors import RowError
from training.exchange import from_trace
from unpacking import ArchiveRefused, Limits, open_archive

FILE_BYTES = 128 * 2**20
"""Of one file."""


LOG_LIMITS = Limits(members=200_000, total_bytes=4 * 2**30, member_bytes=256 * 2**20)
"""Of an Inspect log that is unpacked; a sample at a time is in memory."""
_ZIP = b"PK\x03\x04"
_HEADERS = ("header.json", "_journal/start.json")
_MOST_OF_A_NAME = 100


class FileRefused(ValueError):
    """Nothing of the file was taken; the text says why."""


@dataclass(frozen=True)
class Imported:
    outcome: Outcome
    rollouts: Sequence[int]
    """Primary keys of the rollouts that the file belongs to, in its order."""


def import_file(*, project: Project, name: str, content: bytes) -> Imported:
    """Takes a file in. `name`: what a trace is called that has no name of its own.

    Raises FileRefused; django.db.Error.
    """
    if len(content) > FILE_BYTES:
        raise FileRefused(
            f"The file takes {len(content):,} bytes; at most {FILE_BYTES:,} are taken at once."
            " Split it, or send its events to the ingest address."
        )
    label = PurePath(name).name[:200] or "imported trace"
    try:
        storage.check(project.pk, len(content))
    except storage.StorageFull as full:
        raise FileRefused(str(full)) from full
    if content.startswith(_ZIP):
        return _import_archive(project, label, content)
    try:
        items, traces = _read(project, content.removeprefix(b"\xef\xbb\xbf"), label)
    except foreign.NotReadable as error:
        raise FileRefused(f"{label}: {error}") from error
    if not items:
        raise FileRefused(f"{label} holds no event.")
    outcome = ingest(project=project, items=items)
    names = dict.fromkeys(dump(i.event["rollout"]) for i in items if isinstance(i, Item))
    rollouts = []
    for rollout_name in map(json.loads, names):
        owner = outside_rollout(project.pk, rollout_name)
        if owner is not None:
            rollouts.append(owner.rollout_id)
            _store_tokens(owner.rollout, traces.get(rollout_name, []))
    return Imported(outcome, rollouts)


def _import_archive(project: Project, label: str, content: bytes) -> Imported:
    """A log of Inspect as a zip, sample by sample: unpacked it is some ten times as long.

    What was stored before a sample that cannot be read stays; the same file again goes on there.
    """
    outcome = Outcome()
    rollouts: dict[int, None] = {}
    header: dict[str, Any] = {}
    n_items = 0
    try:
        for path, value in _members(content):
            if path in _HEADERS:
                header = value if isinstance(value, dict) else {}
                continue
            events = inspect_logs.events_of_sample(header, value, path)
            items = [checked(n_items + index, event) for index, event in enumerate(events)]
            n_items += len(items)
            part = ingest(project=project, items=items)
            outcome.accepted += part.accepted
            outcome.duplicate += part.duplicate
            outcome.rejected += part.rejected
            owner = outside_rollout(project.pk, events[0]["rollout"])
            if owner is not None:
                rollouts[owner.rollout_id] = None
    except (foreign.NotReadable, ArchiveRefused) as error:
        raise FileRefused(f"{label}: {error}") from error
    if not n_items:
        raise FileRefused(
            f"{label} is a zip, but no log of Inspect: it holds no samples/….json. Accepted are "
            "logs of Inspect (.eval), and JSON or JSON lines that are not packed."
        )
    return Imported(outcome, list(rollouts))


def _members(content: bytes) -> Iterator[tuple[str, Any]]:
    """The header first, whatever its place. Raises ArchiveRefused, NotReadable."""
    with open_archive(content, LOG_LIMITS, keep=_is_of_a_log) as archive:
        opened = archive.by_path()
        headers = [path for path in _HEADERS if path in opened][:1]
        for path in [*headers, *(path for path in opened if path not in _HEADERS)]:
            try:
                yield path, parse(b"".join(opened[path]()).decode())
            except (ValueError, TooDeep, RecursionError) as error:
                if isinstance(error, ArchiveRefused):
                    raise
                told = str(error)[:200] or "nested too deeply"
                raise foreign.NotReadable(f"{path}: is no JSON: {told}") from error


def _is_of_a_log(path: str) -> bool:
    return path in _HEADERS or (path.startswith("samples/") and path.endswith(".json"))


def _read(
    project: Project, content: bytes, label: str
) -> tuple[list[Item | Refused], dict[str, list[dict[str, Any]]]]:
    """Items, and the training traces in them by rollout."""
    values = _documents(content)
    if values is None:
        lines = [(i, line) for i, line in enumerate(content.split(b"\n")) if line.strip()]
        return [_own_or_event(index, line) for index, line in lines], {}
    events: list[Any] = []
    traces: dict[str, list[dict[str, Any]]] = {}
    for number, value in enumerate(values, start=1):
        if foreign.is_atif(value):
            named = foreign.atif_name(value) or (label if number == 1 else f"{label} {number}")
            read = foreign.from_atif(value, rollout=named)
            events += _under_own_name(project, read, named)
        elif inspect_logs.is_inspect(value):
            for sample in inspect_logs.events_of_log(value):
                events += sample
        elif foreign.is_training_trace(value):
            named = f"{_named(value) or label} tokens"
            known = traces.setdefault(named, [])
            prefix = f"{foreign.HEAD}-{len(known) + 1}"
            first = sum(1 + len(trace["turns"]) for trace in known)
            events += foreign.from_training_trace(value, rollout=named, prefix=prefix, first=first)
            known.append(value)
        elif isinstance(value, dict) and isinstance(value.get("events"), list):
            events += value["events"]
        else:
            events.append(foreign.from_own_line(value) if foreign.is_own_line(value) else value)
    return [checked(index, event) for index, event in enumerate(events)], traces


def _under_own_name(project: Project, events: list[Any], name: str) -> list[Any]:
    """The events under a name that no other trajectory has: parts of a session may share its id."""
    head = {key: value for key, value in events[0].items() if key != "rollout"}
    for number in range(1, _MOST_OF_A_NAME):
        tried = name if number == 1 else f"{name} {number}"
        owner = outside_rollout(project.pk, tried)
        stored = owner.events.order_by("position", "seq").first() if owner is not None else None
        if stored is None:
            break
        known = parse(stored.body)
        if {key: value for key, value in known.items() if key != "rollout"} == head:
            break
    return [{**event, "rollout": tried} for event in events]


def _documents(content: bytes) -> list[Any] | None:
    """The JSON values of a file that is one value, or one document a line; None for lines of
    events, which are read one by one so that a bad one spoils no other."""
    try:
        value = parse(content.decode())
        return value if isinstance(value, list) else [value]
    except (ValueError, TooDeep, RecursionError):
        pass
    lines = [line for line in content.split(b"\n") if line.strip()]
    try:
        first = parse(lines[0].decode()) if lines else None
        if not (foreign.is_atif(first) or foreign.is_training_trace(first)):
            return None
        return [parse(line.decode()) for line in lines]
    except (ValueError, TooDeep, RecursionError) as error:
        if len(lines) > 1:
            return None
        raise FileRefused(f"The file is no JSON: {str(error)[:300] or 'too deep'}") from error


def _own_or_event(index: int, line: bytes) -> Item | Refused:
    item = read_item(index, line)
    if not isinstance(item, Refused) or item.reason_kind != "missing_field":
        return item
    value = parse(line.decode())
    return checked(index, foreign.from_own_line(value)) if foreign.is_own_line(value) else item


def _named(trace: dict[str, Any]) -> str:
    """The rollout that one of our own training traces names."""
    turns = trace["turns"]
    last = turns[-1] if turns and isinstance(turns[-1], dict) else {}
    metadata = last.get("metadata")
    own = metadata.get("switchback") if isinstance(metadata, dict) else None
    name = own.get("rollout") if isinstance(own, dict) else None
    return name if isinstance(name, str) else ""


# Tokens


def _store_tokens(rollout: Rollout, traces: Sequence[dict[str, Any]]) -> None:
    """The ledger of a rollout whose training traces came in; once."""
    with transaction.atomic():
        Rollout.everything.select_for_update().get(pk=rollout.pk)
        if not traces or rollout.token_rows.exists():
            return
        rows = list(_token_rows(rollout, traces))
        TokenRow.objects.bulk_create(rows)
        if rows:
            Rollout.everything.filter(pk=rollout.pk).update(
                weight_version=rows[-1].weight_version,
                tokens_out=sum(len(row.logprobs) for row in rows),
            )


def _token_rows(rollout: Rollout, traces: Sequence[dict[str, Any]]) -> Iterator[TokenRow]:
    """A trace whose tokens make no row is kept as events alone."""
    index = 0
    for trace in traces:
        try:
            rows = from_trace(json.loads(dump(trace)), rollout=str(rollout.pk))
        except RowError:
            continue
        for row in rows:
            runs: list[list[Any]] = []
            for kind in row.kinds:
                if runs and runs[-1][0] == kind.value:
                    runs[-1][1] += 1
                else:
                    runs.append([kind.value, 1])
            logprobs = row.logprobs or (0.0,) * len(row.ids)
            yield TokenRow(
                rollout=rollout,
                index=index,
                ids=list(row.ids),
                kinds=runs,
                logprobs=[lp for lp, k in zip(logprobs, row.kinds, strict=True) if k == "action"],
                weight_version=row.weight_version[:120],
            )
            index += 1
