"""A project into a file. Reads only, in batches, beside running work.

Rows are read table by table, parents first; a row whose parent came after its table was read is
left for the next export, as are events beyond the end that their stream had. So every archive is
whole in itself, whatever is written meanwhile. What is under way comes as ended.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.db import models
from django.utils import timezone

from optimizer.models import Blob, HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.keeping.archive.manifest import MEMBER, Kept, Manifest
from orchestrator.keeping.archive.places import Places
from orchestrator.keeping.archive.references import EVENTS, FIELDS, NUMBERS, name_out, replaced
from orchestrator.keeping.archive.tables import (
    LEFT_OUT,
    TABLES,
    UNDER_WAY,
    Table,
    label_of,
    rows_of,
    through,
)
from orchestrator.keeping.people import bare_name
from orchestrator.projects.models import Project, User
from orchestrator.trainings.folders import adapter_folder
from training.models import Checkpoint

BATCH = 2_000
TEXTS, PEOPLE = "texts.jsonl", "people.jsonl"
_MADE = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20
Report = Callable[[int, str], None]
"""Rows so far and the table's name; may raise to end the export."""


def write_archive(
    *,
    project: Project,
    path: Path,
    version: str,
    with_checkpoints: bool = False,
    report: Report = lambda done, doing: None,
) -> Manifest:
    """Writes `path`, which must not exist. Whoever calls removes it after a failure."""
    manifest = Manifest(
        project=project.name,
        version=version,
        made_at=timezone.now().isoformat(timespec="seconds"),
        has_checkpoints=with_checkpoints,
        endpoints_without_key=list(
            ModelEndpoint.objects.filter(project=project)
            .exclude(secret="")
            .order_by("name")
            .values_list("name", flat=True)
        ),
        left_out=sorted({f"{name}: {reason}" for name, reason in LEFT_OUT.items()}),
    )
    with path.open("xb") as file, zipfile.ZipFile(file, "w", allowZip64=True) as packed:
        _Writer(project, packed, manifest, report).write(with_checkpoints)
        packed.writestr(_info(MEMBER), manifest.to_json())
    return manifest


class _Writer:
    def __init__(
        self, project: Project, packed: zipfile.ZipFile, manifest: Manifest, report: Report
    ) -> None:
        self._project, self._zip, self._manifest, self._report = project, packed, manifest, report
        self._places = Places()
        self._people: dict[int, int] = {}
        """Place by the user's key, in the order in which they are met."""
        self._ends: dict[int, int] = {}
        """Sequence of the last event, by stream."""
        self._done = 0

    def write(self, with_checkpoints: bool) -> None:
        for each in TABLES:
            self._manifest.rows[each.model_name] = self._member(each.member, self._lines(each))
        self._manifest.rows[TEXTS] = self._member(TEXTS, self._texts())
        self._manifest.rows[PEOPLE] = self._member(PEOPLE, self._names())
        if with_checkpoints:
            self._checkpoints()

    def _member(self, name: str, lines: Iterator[bytes]) -> int:
        count, size, digest = 0, 0, hashlib.sha256()
        with self._zip.open(_info(name), "w", force_zip64=True) as member:
            for line in lines:
                member.write(line)
                digest.update(line)
                count, size = count + 1, size + len(line)
        self._manifest.members[name] = Kept(size, digest.hexdigest())
        return count

    def _lines(self, table: Table) -> Iterator[bytes]:
        columns = [each.attname for each in table.fields]
        last, found = 0, rows_of(table, self._project.pk)
        while rows := list(found.filter(pk__gt=last).values_list("pk", *columns)[:BATCH]):
            last = rows[-1][0]
            people = self._lists(table, [row[0] for row in rows])
            for key, *values in rows:
                row = self._row(table, values)
                if row is None:
                    continue
                for each in table.people:
                    row[each.name] = people[each.name].get(key, [])
                if table.model_name != "events.Event":  # which nothing names
                    self._places.add(table.model_name, (key,))
                if table.model_name == "events.Stream":
                    self._ends[self._places.count(table.model_name)] = row["last_seq"]
                yield _line(row)
            self._done += len(rows)
            self._report(self._done, str(table.model._meta.verbose_name_plural))

    def _row(self, table: Table, values: list[Any]) -> dict[str, Any] | None:
        """None for a row that hangs on one which is not in the archive."""
        row: dict[str, Any] = {}
        for each, value in zip(table.fields, values, strict=True):
            if each.is_relation and value is not None:
                place = self._place(table, each, value)
                if place is None and not each.null:
                    return None
                value = place
            plain = self._plain(table, each, value)
            if plain is None and value is not None and not each.null:
                return None
            row[each.name] = plain
        if table.model_name == "events.Event":
            row["payload"] = replaced(row["payload"], EVENTS.get(row["kind"], ()), self._places.of)
            if row["seq"] > self._ends.get(row["stream"], 0):
                return None
        if table.model_name == "environments.Curriculum":
            row["key"] = name_out(row["key"], self._places.of)
        if (ended := table.ended) and row["state"] in ended.open:
            row["state"] = ended.as_state
            if ended.reason and not row[ended.reason]:
                row[ended.reason] = UNDER_WAY
            if "ended_at" in row and not row["ended_at"]:
                row["ended_at"] = row.get("started_at") or row.get("created_at")
        return row

    def _place(self, table: Table, each: models.Field[Any, Any], key: int) -> int | None:
        to = label_of(each)
        if to == User._meta.label:
            return self._people.setdefault(key, len(self._people) + 1)
        return self._places.of(to, key)

    def _plain(self, table: Table, each: models.Field[Any, Any], value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.isoformat()
        if isinstance(value, bytes | memoryview):
            return base64.b64encode(value).decode()
        if references := FIELDS.get(table.model_name, {}).get(each.name):
            return replaced(value, references, self._places.of)
        if (to := NUMBERS.get((table.model_name, each.name))) and value is not None:
            return self._places.of(to, value)
        return value

    def _lists(self, table: Table, keys: list[int]) -> dict[str, dict[int, list[int]]]:
        """Places of the users in each list of users, by row."""
        found: dict[str, dict[int, list[int]]] = {each.name: {} for each in table.people}
        for each in table.people:
            model, owner, user = through(each)
            rows = model._base_manager.filter(**{f"{owner}__in": keys})
            for key, user_id in rows.order_by("pk").values_list(f"{owner}_id", f"{user}_id"):
                place = self._people.setdefault(user_id, len(self._people) + 1)
                found[each.name].setdefault(key, []).append(place)
        return found

    def _texts(self) -> Iterator[bytes]:
        """Of harnesses, each once, by hash."""
        wanted: set[str] = set()
        for components in HarnessVersion.objects.filter(project=self._project).values_list(
            "components", flat=True
        ):
            wanted.update(components.values())
        ordered = sorted(wanted)
        for start in range(0, len(ordered), 500):
            chunk = Blob.objects.filter(sha256__in=ordered[start : start + 500]).order_by("sha256")
            for sha256, text in chunk.values_list("sha256", "text"):
                yield _line({"sha256": sha256, "text": text})

    def _names(self) -> Iterator[bytes]:
        names = User.objects.in_bulk(list(self._people))
        for key in self._people:  # in the order of their places
            yield _line({"name": bare_name(names[key].username) if key in names else "somebody"})

    def _checkpoints(self) -> None:
        """Adapters that are kept on this host; the rows of others stay without files."""
        found = Checkpoint.objects.filter(training_job__project=self._project).order_by("pk")
        for checkpoint in found.select_related("training_job"):
            place = self._places.of("training.Checkpoint", checkpoint.pk)
            folder = adapter_folder(checkpoint)
            if place is None or not checkpoint.training_job.folder or not folder.is_dir():
                continue
            for path in sorted(folder.iterdir()):
                if path.suffix in (".safetensors", ".json") and path.is_file():
                    self._member(f"checkpoints/{place}/{path.name}", _pieces(path))
            self._report(self._done, "checkpoints")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def _line(row: dict[str, Any]) -> bytes:
    # Sorted: PostgreSQL keeps no order of names, and equal projects give equal bytes.
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _MADE)
    is_packed = name.endswith(".safetensors")
    info.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    return info
