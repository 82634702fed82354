"""A project of a file. The file is foreign: members, rows and values are checked as they come in.

Rows are written in batches, parents first, each batch in a transaction of its own; nobody is a
member of the project until all of it is there. Whoever calls takes the half project away by
`rows.discard` after a failure, and before another attempt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DatabaseError, models, transaction

from optimizer.errors import HarnessInvalid
from optimizer.harness import Harness
from optimizer.models import Blob
from orchestrator.agents.models import ModelEndpoint
from orchestrator.events.models import Stream, WaitingWords
from orchestrator.keeping.archive.ending import end_logs
from orchestrator.keeping.archive.manifest import MAX_BYTES, MEMBER, Manifest, read_manifest
from orchestrator.keeping.archive.places import Places
from orchestrator.keeping.archive.references import EVENTS, FIELDS, NUMBERS, name_in, replaced
from orchestrator.keeping.archive.rows import insert, trainings
from orchestrator.keeping.archive.tables import TABLES, Table, label_of, through
from orchestrator.keeping.archive.values import checked
from orchestrator.keeping.archive.writing import PEOPLE, TEXTS, Report
from orchestrator.keeping.errors import ArchiveInvalid
from orchestrator.keeping.people import stand_in
from orchestrator.projects.models import Project, User
from rubrics.codec import content_hash, from_json
from rubrics.errors import RubricInvalid
from training.models import Checkpoint, TrainingJob
from unpacking import Archive, ArchiveRefused, Limits, open_archive

LIMITS = Limits(members=20_000, total_bytes=64 * 2**30, ratio=400)
MAX_LINE_BYTES = 64 * 2**20
BATCH = 1_000
MAX_KEY = 120
"""Characters of the name of a curriculum."""


def look_into(path: Path) -> Manifest:
    """What a file says it is, without reading the rest. Raises ArchiveInvalid."""
    with _opened(path) as archive:
        return _manifest(archive.by_path())


def read_archive(
    *, project: Project, path: Path, report: Report = lambda done, doing: None
) -> Manifest:
    """Fills an empty project. Raises ArchiveInvalid."""
    with _opened(path) as archive:
        members = archive.by_path()
        manifest = _manifest(members)
        expected = {MEMBER, *manifest.members}
        if odd := sorted(expected ^ set(members)):
            raise ArchiveInvalid(f"The manifest and the archive differ: {', '.join(odd[:5])}.")
        missing = {table.member for table in TABLES} | {TEXTS, PEOPLE}
        if absent := sorted(missing - expected):
            raise ArchiveInvalid(f"The archive has no {absent[0]}.")
        known = missing | {MEMBER}
        if strange := [name for name in sorted(expected - known) if not _is_file(name)]:
            raise ArchiveInvalid(
                f"The archive has {strange[0]}, which this version does not know. It was written "
                f"by version {manifest.version!r:.40}."
            )
        _Reader(project, manifest, members, report).read()
        return manifest


@dataclass
class _Line:
    number: int
    row: dict[str, Any]


class _Reader:
    def __init__(
        self,
        project: Project,
        manifest: Manifest,
        members: dict[str, Callable[[], Iterator[bytes]]],
        report: Report,
    ) -> None:
        self._project, self._manifest, self._members = project, manifest, members
        self._report = report
        self._places = Places()
        self._people: list[int] = []
        self._texts: dict[str, str] = {}
        self._done = 0

    def read(self) -> None:
        self._read_people()
        self._read_texts()
        for table in TABLES:
            self._read_table(table)
        self._texts.clear()
        self._ask_for_words()
        end_logs(self._project)
        self._place_folders()
        for name in self._manifest.members:
            if _is_file(name):
                self._read_file(name)
                self._report(self._done, "checkpoints")

    # --- rows ---------------------------------------------------------------------------------

    def _read_table(self, table: Table) -> None:
        batch: list[_Line] = []
        later: list[tuple[int, dict[str, int]]] = []
        for line in self._lines(table.member):
            batch.append(line)
            if len(batch) >= BATCH:
                self._write(table, batch, later)
                batch = []
        if batch:
            self._write(table, batch, later)
        self._link(table, later)

    def _write(
        self, table: Table, batch: list[_Line], later: list[tuple[int, dict[str, int]]]
    ) -> None:
        rows, own, lists = [], [], []
        for line in batch:
            try:
                row, links = self._row(table, line.row)
            except (ArchiveInvalid, ValidationError) as error:
                raise ArchiveInvalid(f"{table.member} line {line.number}: {error}") from error
            rows.append(row)
            own.append(links)
            lists.append(line.row)
        try:
            with transaction.atomic():
                keys = insert(table, rows)
                self._write_lists(table, keys, lists)
                if table.model_name == "optimizer.HarnessVersion":
                    self._write_texts(rows)
        except (DatabaseError, OverflowError, ValueError) as error:
            raise ArchiveInvalid(
                f"{table.member} lines {batch[0].number} to {batch[-1].number}: {error}"
            ) from error
        later += [(key, links) for key, links in zip(keys, own, strict=True) if links]
        if table.model_name != "events.Event":
            self._places.add(table.model_name, keys)
        self._done += len(batch)
        self._report(self._done, str(table.model._meta.verbose_name_plural))

    def _row(self, table: Table, given: dict[str, Any]) -> tuple[models.Model, dict[str, int]]:
        """The row, and the places in its own table that it names, which may come later."""
        names = {each.name for each in table.fields} | {each.name for each in table.people}
        if odd := sorted(set(given) - names):
            raise ArchiveInvalid(
                f"has the field {odd[0]!r:.60}, which this version does not know. The archive was "
                f"written by version {self._manifest.version!r:.40}."
            )
        values: dict[str, Any] = dict(table.without)
        links: dict[str, int] = {}
        for each in table.fields:
            if each.name not in given:
                continue  # a field that is newer than the archive: its default
            value = checked(each, given[each.name])
            if each.is_relation and value is not None:
                if each.related_model is table.model:
                    links[each.name], value = value, None
                else:
                    value = self._key(each, value)
            elif references := FIELDS.get(table.model_name, {}).get(each.name):
                value = replaced(value, references, self._places.key)
            elif (to := NUMBERS.get((table.model_name, each.name))) and value is not None:
                value = self._places.key(to, value)
                if value is None and not each.null:
                    raise ArchiveInvalid(f"{each.name} names no row of {to}.")
            values[each.attname] = value
        if table.model_name == "events.Event":
            references = EVENTS.get(values.get("kind", ""), ())
            values["payload"] = replaced(values.get("payload"), references, self._places.key)
        if table.model_name == "environments.Curriculum":
            key = name_in(values.get("key", ""), self._places.key, self._project.pk)
            values["key"] = key[:MAX_KEY]
        if table.ended and values.get("state") in table.ended.open:
            raise ArchiveInvalid(f"state is {values['state']!r}: nothing under way can come in.")
        if table.path == "project":
            values["project_id"] = self._project.pk
        self._check_content(table, values)
        return table.model(**values), links

    def _key(self, each: models.Field[Any, Any], place: int) -> int:
        to = label_of(each)
        if to == User._meta.label:
            return self._person(place)
        key = self._places.key(to, place)
        if key is None:
            raise ArchiveInvalid(f"{each.name} names row {place} of {to}, which is not there.")
        return key

    def _person(self, place: Any) -> int:
        if not isinstance(place, int) or not 0 < place <= len(self._people):
            raise ArchiveInvalid(f"names person {place!r:.20}, who is not there.")
        return self._people[place - 1]

    def _link(self, table: Table, later: list[tuple[int, dict[str, int]]]) -> None:
        for start in range(0, len(later), BATCH):
            with transaction.atomic():
                for key, links in later[start : start + BATCH]:
                    found = {
                        name: self._places.key(table.model_name, place)
                        for name, place in links.items()
                    }
                    if None in found.values():
                        raise ArchiveInvalid(f"{table.member}: a row names one that is not there.")
                    table.model._base_manager.filter(pk=key).update(
                        **{f"{name}_id": value for name, value in found.items()}
                    )

    def _write_lists(self, table: Table, keys: list[int], rows: list[dict[str, Any]]) -> None:
        for each in table.people:
            model, owner, user = through(each)
            model._base_manager.bulk_create(
                [
                    model(**{f"{owner}_id": key, f"{user}_id": self._person(place)})
                    for key, row in zip(keys, rows, strict=True)
                    for place in row.get(each.name, [])
                ]
            )

    # --- content ------------------------------------------------------------------------------

    def _check_content(self, table: Table, values: dict[str, Any]) -> None:
        """What is named by its hash must have it."""
        if table.model_name == "rubrics.RubricVersion":
            try:
                found = content_hash(from_json(values["spec"]))
            except (RubricInvalid, KeyError, TypeError, ValueError) as error:
                raise ArchiveInvalid(f"spec is not a rubric: {error}") from error
            if found != values.get("sha256"):
                raise ArchiveInvalid("sha256 is not that of the rubric.")
        if table.model_name == "optimizer.HarnessVersion":
            try:
                texts = {key: self._texts[sha] for key, sha in values["components"].items()}
                harness = Harness.from_components(texts)
            except (HarnessInvalid, KeyError, AttributeError, TypeError) as error:
                raise ArchiveInvalid(f"components are not a harness: {error}") from error
            if harness.sha256 != values.get("sha256"):
                raise ArchiveInvalid("sha256 is not that of the harness.")

    def _read_texts(self) -> None:
        for line in self._lines(TEXTS):
            text, sha256 = line.row.get("text"), line.row.get("sha256")
            if not isinstance(text, str) or _sha256(text) != sha256:
                raise ArchiveInvalid(f"{TEXTS} line {line.number}: the text is not of its hash.")
            self._texts[sha256] = text

    def _write_texts(self, rows: list[models.Model]) -> None:
        wanted = {sha for row in rows for sha in row.components.values()}  # type: ignore[attr-defined]
        Blob.objects.bulk_create(
            [
                Blob(sha256=sha, text=self._texts[sha], size_bytes=len(self._texts[sha].encode()))
                for sha in sorted(wanted)
            ],
            ignore_conflicts=True,
        )

    def _read_people(self) -> None:
        for line in self._lines(PEOPLE):
            name = line.row.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= 150 or "\x00" in name:
                raise ArchiveInvalid(f"{PEOPLE} line {line.number}: has no name.")
            self._people.append(stand_in(name, self._project.pk).pk)

    def _ask_for_words(self) -> None:
        """The full-text index follows, stream by stream, as that of ingested events does."""
        ends = Stream.objects.filter(project=self._project, last_seq__gt=0)
        WaitingWords.objects.bulk_create(
            (
                WaitingWords(stream_id=key, first_seq=first, last_seq=min(first + 399, last))
                for key, last in ends.values_list("pk", "last_seq").iterator()
                for first in range(1, last + 1, 400)
            ),
            batch_size=1_000,
        )

    # --- files --------------------------------------------------------------------------------

    def _place_folders(self) -> None:
        for job in TrainingJob.objects.filter(project=self._project):
            job.folder = str(trainings() / str(job.pk))
            job.save(update_fields=["folder"])

    def _read_file(self, name: str) -> None:
        _, place, file_name = name.split("/")
        key = self._places.key("training.Checkpoint", int(place[:18]))
        if key is None:
            raise ArchiveInvalid(f"{name}: there is no such checkpoint.")
        checkpoint = Checkpoint.objects.select_related("training_job", "promoted_as").get(pk=key)
        folder = Path(checkpoint.training_job.folder) / "publish" / f"v{checkpoint.step:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / file_name).open("xb") as file:
            for chunk in self._chunks(name):
                file.write(chunk)
        if checkpoint.promoted_as is not None:
            ModelEndpoint.objects.filter(pk=checkpoint.promoted_as.pk).update(
                adapter_path=str(folder)
            )

    # --- members ------------------------------------------------------------------------------

    def _chunks(self, name: str) -> Iterator[bytes]:
        """Of a member, which is held against the manifest at its end."""
        kept = self._manifest.members[name]
        digest, size = hashlib.sha256(), 0
        for chunk in self._members[name]():
            digest.update(chunk)
            size += len(chunk)
            yield chunk
        if (size, digest.hexdigest()) != (kept.size, kept.sha256):
            raise ArchiveInvalid(f"{name} is not what was exported: its hash differs.")

    def _lines(self, name: str) -> Iterator[_Line]:
        number, rest = 0, b""
        for chunk in self._chunks(name):
            *whole, rest = (rest + chunk).split(b"\n")
            for text in whole:
                number += 1
                yield _Line(number, _parsed(name, number, text))
            if len(rest) > MAX_LINE_BYTES:
                raise ArchiveInvalid(f"{name} line {number + 1}: has more than 64 MiB.")
        if rest:
            raise ArchiveInvalid(f"{name} line {number + 1}: is cut off.")
        table = name.removeprefix("rows/").removesuffix(".jsonl") if "/" in name else name
        if number != self._manifest.rows.get(table):
            raise ArchiveInvalid(
                f"{name} has {number:,} rows; the manifest says {self._manifest.rows.get(table)}."
            )


def _parsed(name: str, number: int, text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArchiveInvalid(f"{name} line {number}: is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ArchiveInvalid(f"{name} line {number}: is not an object.")
    return row


def _manifest(members: dict[str, Callable[[], Iterator[bytes]]]) -> Manifest:
    if MEMBER not in members:
        raise ArchiveInvalid(f"The archive has no {MEMBER}: it is not an exported project.")
    text = b""
    for chunk in members[MEMBER]():
        text += chunk
        if len(text) > MAX_BYTES:
            raise ArchiveInvalid(f"{MEMBER} has more than {MAX_BYTES // 2**20} MiB.")
    return read_manifest(text)


def _is_file(name: str) -> bool:
    parts = name.split("/")
    return (
        len(parts) == 3
        and parts[0] == "checkpoints"
        and parts[1].isascii()
        and parts[1].isdecimal()
        and parts[2].endswith((".safetensors", ".json"))
    )


@contextmanager
def _opened(path: Path) -> Iterator[Archive]:
    try:
        with open_archive(path, LIMITS) as archive:
            yield archive
    except ArchiveRefused as error:
        raise ArchiveInvalid(str(error)) from error


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
