"""Export, import, export: the same content; and what is not an archive comes to nothing."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import transaction

from orchestrator.events.models import Event
from orchestrator.judging.models import JudgeCall
from orchestrator.keeping.archive.reading import look_into, read_archive
from orchestrator.keeping.archive.references import names
from orchestrator.keeping.archive.rows import discard
from orchestrator.keeping.archive.tables import LEFT_OUT, TABLES, label_of, rows_of
from orchestrator.keeping.archive.writing import write_archive
from orchestrator.keeping.errors import ArchiveInvalid
from orchestrator.projects.models import Project, User
from orchestrator.review.models import Annotation
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState, VerdictRecord
from tests.base import make_project
from tests.keeping.filled import CANARY, Filler
from tests.unpacking.hostile import ZIPS

pytestmark = pytest.mark.django_db
DJANGO = {
    "admin",
    "auth",
    "contenttypes",
    "sessions",
    "axes",
    "account",
    "socialaccount",
    "keeping",
}


@pytest.fixture
def project() -> Project:
    found = make_project(name="Words")
    Filler(found).fill()
    return found


@pytest.fixture(scope="module")
def archive(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Path:
    """Of a project that is gone again."""
    path = tmp_path_factory.mktemp("archive") / "a.zip"
    with django_db_blocker.unblock(), transaction.atomic():
        found = make_project(name="Words")
        Filler(found).fill()
        exported(found, path)
        transaction.set_rollback(True)
    return path


def exported(project: Project, path: Path) -> dict[str, str]:
    return write_archive(project=project, path=path, version="1").content


def test_a_round_trip_gives_the_same_content(project: Project, tmp_path: Path) -> None:
    first = exported(project, tmp_path / "a.zip")
    other = Project.objects.create(name="Words")
    manifest = read_archive(project=other, path=tmp_path / "a.zip")
    assert all(manifest.rows[table.model_name] for table in TABLES)
    assert exported(other, tmp_path / "b.zip") == first
    assert exported(project, tmp_path / "c.zip") == first


def test_times_and_keys_inside_json_come_along(project: Project, tmp_path: Path) -> None:
    rollout = Rollout.everything.filter(run__project=project).latest("pk")
    call = JudgeCall.objects.filter(project=project)[1]
    verdict = VerdictRecord.objects.filter(rollout__run__project=project)[0]
    verdict.detail = {"calls": [{"call": call.pk, "value": 1.0}], "steps": [{"calls": []}]}
    verdict.save()
    Event.objects.filter(stream__project=project).update(
        kind="rollout", payload={"id": rollout.pk, "task": "t"}
    )
    exported(project, tmp_path / "a.zip")
    other = Project.objects.create(name="Words")
    read_archive(project=other, path=tmp_path / "a.zip")
    first, twin = Rollout.everything.filter(run__project=other).order_by("pk")
    assert (twin.seed, twin.started_at) == (rollout.seed, rollout.started_at)
    assert twin.run.created_at == rollout.run.created_at
    assert twin.retry_of_id == first.pk
    event = Event.objects.filter(stream__project=other)[0]
    assert event.payload == {"id": twin.pk, "task": "t"}
    said = VerdictRecord.objects.filter(rollout__run__project=other)[0].detail
    assert said["calls"][0]["call"] == JudgeCall.objects.filter(project=other)[1].pk


def test_no_secret_leaves_and_endpoints_say_that_they_had_one(
    project: Project, tmp_path: Path
) -> None:
    manifest = write_archive(project=project, path=tmp_path / "a.zip", version="1")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert all(CANARY.encode() not in archive.read(name) for name in archive.namelist())
    assert len(manifest.endpoints_without_key) == 2


def test_what_is_under_way_comes_as_ended(project: Project, tmp_path: Path) -> None:
    run = Run.objects.filter(project=project).earliest("pk")
    Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING, ended_at=None)
    Rollout.objects.filter(run=run).update(state=RolloutState.PENDING, score=None, message="")
    exported(project, tmp_path / "a.zip")
    other = Project.objects.create(name="Words")
    read_archive(project=other, path=tmp_path / "a.zip")
    twin = Run.objects.filter(project=other).order_by("pk")[0]
    assert (twin.state, twin.error != "", twin.ended_at is None) == ("failed", True, False)
    rollout = twin.rollouts.get()
    assert (rollout.state, rollout.score) == ("cancelled", None)
    assert "under way" in rollout.message


def test_people_come_as_names_that_cannot_sign_in(project: Project, tmp_path: Path) -> None:
    author = Annotation.objects.filter(rollout__run__project=project)[0].user
    exported(project, tmp_path / "a.zip")
    other = Project.objects.create(name="Words")
    read_archive(project=other, path=tmp_path / "a.zip")
    twin = Annotation.objects.filter(rollout__run__project=other)[0].user
    assert twin.pk != author.pk
    assert twin.username == f"{author.username} (imported #{other.pk})"
    assert not twin.is_active
    assert not twin.has_usable_password()


def rewritten(source: Path, target: Path, change: Any) -> Path:
    """A copy of an archive; `change` gets the manifest and the texts by member."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(manifest, members)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("manifest.json", json.dumps(manifest))
    return target


def signed(manifest: Any, members: dict[str, bytes], name: str, content: bytes) -> None:
    """With a hash and a count that fit: who made it was not careless but hostile."""
    members[name] = content
    manifest["members"][name] = {
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    table = name.removeprefix("rows/").removesuffix(".jsonl")
    manifest["rows"][table] = content.count(b"\n")


def field(table: str, name: str, value: Any) -> Any:
    def change(manifest: Any, members: dict[str, bytes]) -> None:
        member = f"rows/{table}.jsonl"
        first, *rest = members[member].splitlines(keepends=True)
        row = json.loads(first) | {name: value}
        signed(manifest, members, member, json.dumps(row).encode() + b"\n" + b"".join(rest))

    return change


def newer(manifest: Any, members: dict[str, bytes]) -> None:
    manifest["schema"] = 99


def no_project(manifest: Any, members: dict[str, bytes]) -> None:
    manifest["format"] = "something else"


def swapped(manifest: Any, members: dict[str, bytes]) -> None:
    members["rows/runs.Run.jsonl"] = members["rows/runs.Run.jsonl"].replace(b"label", b"lobel")


def dropped(manifest: Any, members: dict[str, bytes]) -> None:
    del members["rows/runs.Run.jsonl"]


def miscounted(manifest: Any, members: dict[str, bytes]) -> None:
    manifest["rows"]["runs.Run"] += 1


def stranger(manifest: Any, members: dict[str, bytes]) -> None:
    signed(manifest, members, "rows/projects.User.jsonl", b"{}\n")


def outside(manifest: Any, members: dict[str, bytes]) -> None:
    signed(manifest, members, "checkpoints/1/../../../evil.json", b"{}\n")


def deep(manifest: Any, members: dict[str, bytes]) -> None:
    text = b'{"payload":' + b"[" * 100_000 + b"}\n"
    signed(manifest, members, "rows/events.Event.jsonl", text)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (newer, "schema 99; this installation reads up to schema 1. Update it"),
        (no_project, "not that of an exported project"),
        (swapped, "rows/runs.Run.jsonl"),
        (dropped, "The manifest and the archive differ: rows/runs.Run.jsonl"),
        (miscounted, "has 2 rows; the manifest says 3"),
        (stranger, "rows/projects.User.jsonl, which this version does not know"),
        (outside, "leads outside"),
        (deep, "is not JSON"),
        (field("runs.Run", "password", "x"), "has the field 'password'"),
        (field("runs.Run", "project", 1), "has the field 'project'"),
        (field("runs.Run", "adapter_path", "/etc"), "has the field 'adapter_path'"),
        (field("training.TrainingJob", "folder", "/etc"), "has the field 'folder'"),
        (field("runs.Run", "stream", 9_999), "names row 9999 of events.Stream"),
        (field("runs.Run", "stream", -1), "stream"),
        (field("runs.Run", "seed", 2**70), "seed is"),
        (field("runs.Run", "seed", "7"), "it is a whole number"),
        (field("runs.Run", "label", "x" * 500), "label is longer than 120"),
        (field("runs.Run", "label", None), "label is missing"),
        (field("runs.Run", "state", "running"), "nothing under way can come in"),
        (field("runs.Run", "state", "excellent"), "which is not known"),
        (field("runs.Run", "created_at", "yesterday"), "it is a time with its zone"),
        (field("runs.Rollout", "score", None), "rows/runs.Rollout.jsonl"),
        (field("runs.Rollout", "retry_of", 77), "names one that is not there"),
        (field("rubrics.RubricVersion", "spec", {"format": 1}), "spec is not a rubric"),
        (field("rubrics.RubricVersion", "sha256", "0" * 64), "not that of the rubric"),
        (field("optimizer.HarnessVersion", "components", {}), "not that of the harness"),
        (field("review.Annotation", "user", 5_000), "names person 5000"),
        (field("review.ReviewQueue", "reviewers", [5_000]), "names person 5000"),
        (field("training.TrainingCurve", "data", "%"), "it is a text in base64"),
    ],
)
def test_what_was_changed_is_refused_by_its_place(
    archive: Path, tmp_path: Path, change: Any, told: str
) -> None:
    path = rewritten(archive, tmp_path / "b.zip", change)
    with pytest.raises(ArchiveInvalid) as refused:
        read_archive(project=Project.objects.create(name="Words"), path=path)
    assert told in str(refused.value)


@pytest.mark.parametrize("name", ZIPS)
def test_hostile_zips_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(ZIPS[name][1]({"manifest.json": b"{}"}))
    with pytest.raises(ArchiveInvalid):
        look_into(tmp_path / "a.zip")


def test_a_half_project_is_taken_away_whole(project: Project, tmp_path: Path) -> None:
    exported(project, tmp_path / "a.zip")
    before = {table.model_name: rows_of(table, project.pk).count() for table in TABLES}
    people = User.objects.count()
    path = rewritten(tmp_path / "a.zip", tmp_path / "b.zip", field("events.Event", "stream", 9_999))
    other = Project.objects.create(name="Words")
    with pytest.raises(ArchiveInvalid):
        read_archive(project=other, path=path)
    assert Rollout.objects.filter(run__project=other).exists()
    discard(other)
    assert not Project.objects.filter(pk=other.pk).exists()
    for table in TABLES:
        assert table.model._base_manager.count() == before[table.model_name]
    assert User.objects.count() == people


def test_every_model_is_in_the_archive_or_left_out_with_a_reason() -> None:
    known = {table.model_name for table in TABLES} | set(LEFT_OUT)
    models = {
        model._meta.label for model in apps.get_models() if model._meta.app_label not in DJANGO
    }
    assert models == known
    assert {table.model_name for table in TABLES}.isdisjoint(LEFT_OUT)


def test_rows_name_only_what_comes_before_them() -> None:
    seen = {User._meta.label}
    for table in TABLES:
        for each in table.fields:
            if each.is_relation and each.related_model is not table.model:
                assert label_of(each) in seen, f"{table.model_name}.{each.name}"
        seen.add(table.model_name)
    assert set(names()) <= seen
