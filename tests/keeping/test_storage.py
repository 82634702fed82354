"""Bytes of a project: measured as they come, and a cap that every door reads."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import timezone

from orchestrator.events.models import Event, Stream
from orchestrator.keeping import use
from orchestrator.keeping.archive.services import start_export
from orchestrator.projects import storage
from orchestrator.projects.models import Project
from orchestrator.runs import limits
from orchestrator.runs.limits import LimitReached
from orchestrator.traces.importing import FileRefused, import_file
from orchestrator.traces.services import ingest
from tests.base import People
from tests.keeping.filled import Filler
from training.models import TrainingJob

pytestmark = pytest.mark.django_db


def add_events(project: Project, count: int, size: int = 1_000) -> None:
    stream = Stream.objects.create(project=project, kind="run", last_seq=count)
    Event.objects.bulk_create(
        Event(stream=stream, seq=seq + 1, kind="note", payload={"text": "a" * size})
        for seq in range(count)
    )


def test_new_rows_are_added_to_what_was_measured(people: People) -> None:
    other = Project.objects.create(name="Other")
    now = timezone.now()
    add_events(people.project, 3)
    use.measure(now=now)
    first = storage.storage_of(people.project.pk).by_part["events"]
    assert 3_000 < first < 3_600
    assert storage.storage_of(other.pk).by_part["events"] == 0
    add_events(people.project, 2)
    add_events(other, 1)
    use.measure(now=now + datetime.timedelta(seconds=1))
    assert storage.storage_of(people.project.pk).by_part["events"] == first
    use.measure(now=now + datetime.timedelta(seconds=30))
    assert storage.storage_of(people.project.pk).by_part["events"] == first * 5 // 3
    assert storage.storage_of(other.pk).by_part["events"] == first // 3


def test_what_was_removed_is_forgotten_at_the_next_full_measure(people: People) -> None:
    now = timezone.now()
    add_events(people.project, 3)
    use.measure(now=now)
    Event.objects.filter(seq__gt=1).delete()
    use.measure(now=now + datetime.timedelta(minutes=1))
    assert storage.storage_of(people.project.pk).by_part["events"] > 3_000
    use.forget(people.project.pk)
    use.measure(now=now + datetime.timedelta(minutes=2))
    assert storage.storage_of(people.project.pk).by_part["events"] < 1_300


def test_files_of_trainings_count(people: People) -> None:
    Filler(people.project).fill()
    job = TrainingJob.objects.filter(project=people.project).earliest("pk")
    folder = Path(settings.DATA_DIR) / "training" / f"test-{job.pk}"
    (folder / "publish").mkdir(parents=True)
    (folder / "publish" / "adapter.safetensors").write_bytes(bytes(5_000))
    TrainingJob.objects.filter(pk=job.pk).update(folder=str(folder))
    use.measure()
    assert storage.storage_of(people.project.pk).by_part["checkpoints"] == 5_000


def test_a_full_project_takes_nothing_more_at_any_door(people: People) -> None:
    add_events(people.project, 3)
    use.measure()
    storage.set_storage_cap(actor=people.owner, project_id=people.project.pk, storage_bytes=2_000)
    told = r"keeps 3\.\d kB of the 2 kB it may keep.*Settings, Limits"
    with pytest.raises(LimitReached, match=told):
        limits.check(people.project.pk, 1)
    with pytest.raises(storage.StorageFull, match=told):
        ingest(project=people.project, items=[])
    with pytest.raises(FileRefused, match=told):
        import_file(project=people.project, name="a.jsonl", content=b"{}")
    with pytest.raises(storage.StorageFull, match=told):
        start_export(actor=people.owner, project=people.project)
    storage.set_storage_cap(actor=people.owner, project_id=people.project.pk, storage_bytes=None)
    limits.check(people.project.pk, 1)


def test_what_is_asked_for_counts_before_it_comes(people: People) -> None:
    storage.set_storage_cap(actor=people.owner, project_id=people.project.pk, storage_bytes=1_000)
    storage.check(people.project.pk, 1_000)
    with pytest.raises(storage.StorageFull, match=r"0 bytes of the 1 kB .* 1 kB more"):
        storage.check(people.project.pk, 1_001)


def test_caps_are_for_admins(people: People) -> None:
    for user, refusal in ((people.editor, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            storage.set_storage_cap(actor=user, project_id=people.project.pk, storage_bytes=1)
    with pytest.raises(ValueError, match="from 0 up"):
        storage.set_storage_cap(actor=people.owner, project_id=people.project.pk, storage_bytes=-1)
