"""Rows inserted alike are what `bulk_create` would have made of them."""

from __future__ import annotations

import pytest
from django.db.models import F
from django.db.models.signals import post_save, pre_save

from orchestrator.events.models import Stream
from orchestrator.inserting import insert, insert_alike
from orchestrator.jobs.models import Job
from orchestrator.projects.models import Project
from orchestrator.projects.services import create_first_admin, create_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return create_project(actor=create_first_admin().user, name="one")


def test_rows_have_what_they_name_and_the_rest_alike(project: Project) -> None:
    kinds = [f"kind {n}" for n in range(1_203)]  # more than go into one statement
    ids = insert_alike(Stream(project=project), [{"kind": kind} for kind in kinds])
    kept = list(Stream.objects.filter(pk__in=ids).order_by("pk"))
    assert [each.pk for each in kept] == ids
    assert [each.kind for each in kept] == kinds
    assert {(each.project_id, each.last_seq) for each in kept} == {(project.pk, 0)}


def test_defaults_times_and_json_are_prepared_as_when_saved(project: Project) -> None:
    now = Job._meta.get_field("created_at")
    alike = Job(kind="a", key=None, spec={"umlaut": "ü", "list": [1, None]})
    alike.lease_until = project.created_at
    (one, two) = insert_alike(alike, [{"spec": {"n": 1}}, {"spec": {"n": 2}}])
    (three,) = insert_alike(alike, [{}])
    saved = Job(kind="a", spec=alike.spec, lease_until=project.created_at)
    saved.save()
    assert [Job.objects.get(pk=pk).spec for pk in (one, two, three)] == [
        {"n": 1},
        {"n": 2},
        alike.spec,
    ]
    kept = Job.objects.get(pk=three)
    for field in Job._meta.concrete_fields:
        if not field.primary_key and field != now:
            assert field.value_from_object(kept) == field.value_from_object(saved), field.name
    assert kept.created_at is not None


def test_nothing_is_inserted_for_no_rows(project: Project) -> None:
    assert insert_alike(Stream(project=project), []) == []


def test_it_refuses_unknown_columns_and_expressions(project: Project) -> None:
    with pytest.raises(TypeError, match="no column colour"):
        insert_alike(Stream(project=project), [{"colour": "red"}])
    with pytest.raises(TypeError, match="last_seq is an expression"):
        insert_alike(Stream(project=project, last_seq=F("id")), [{"kind": "a"}])


def test_a_single_row_is_told_like_one_that_is_saved(project: Project) -> None:
    heard: list[tuple[str, object, bool | None]] = []

    def before(instance: object, **_: object) -> None:
        heard.append(("before", instance, None))

    def after(instance: object, created: bool, **_: object) -> None:
        heard.append(("after", instance, created))

    stream = Stream(project=project, kind="a")
    pre_save.connect(before, sender=Stream)
    post_save.connect(after, sender=Stream)
    try:
        insert(stream)
    finally:
        pre_save.disconnect(before, sender=Stream)
        post_save.disconnect(after, sender=Stream)
    assert heard == [("before", stream, None), ("after", stream, True)]
    assert Stream.objects.get(pk=stream.pk).kind == "a"
    stream.kind = "b"
    stream.save()
    assert Stream.objects.get(pk=stream.pk).kind == "b"
