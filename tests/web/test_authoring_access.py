"""Who may see and change what is being written: editors, and nobody else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.environments.authoring.drafts import start_draft
from orchestrator.environments.authoring.publish import publish
from orchestrator.environments.authoring.uploads import preview_upload
from orchestrator.environments.models import EnvironmentDraft, SourceRegistration
from orchestrator.events.services import create_stream
from orchestrator.projects.models import User
from tests.base import People
from tests.environments.drafting import keys_of, make_draft, make_task

FOR_VIEWERS = {"environment_compare", "registration"}
FOR_EDITORS = {
    "environment_new",
    "environment_create",
    "environment_export",
    "draft",
    "draft_settings",
    "draft_task_new",
    "draft_task",
    "draft_upload",
    "upload_preview",
    "upload_errors",
    "draft_publish",
}
PAGES = FOR_VIEWERS | FOR_EDITORS
WRITES = {
    "registration_cancel",
    "environment_delete",
    "environment_describe",
    "draft_start",
    "draft_discard",
    "draft_undo",
    "draft_tasks_change",
    "draft_split",
}


@dataclass(frozen=True)
class World:
    people: People
    draft: EnvironmentDraft
    arguments: dict[str, list[object]]

    def url(self, name: str) -> str:
        return reverse(f"web:{name}", args=[self.people.project.pk, *self.arguments[name]])


@pytest.fixture
def world(people: People) -> World:
    draft = make_draft(people, make_task("q1"), make_task("q2", split="test"))
    version = publish(actor=people.editor, draft=draft, revision=draft.revision).version
    draft = start_draft(actor=people.editor, environment=version.environment, version=version)
    upload = preview_upload(
        actor=people.editor, draft=draft, filename="t.csv", content="prompt,answer\na,b\n"
    )
    registration = SourceRegistration.objects.create(
        project=people.project,
        stream=create_stream(project=people.project, kind="registration"),
        name="A package",
        kind="package",
        source={"path": "/srv/environment"},
    )
    slug = draft.environment.slug
    arguments: dict[str, list[object]] = {name: [slug] for name in PAGES | WRITES}
    arguments |= {
        "environment_new": [],
        "environment_create": ["qa"],
        "draft_task": [slug, "q1"],
        "upload_preview": [slug, upload.pk],
        "upload_errors": [slug, upload.pk],
        "registration": [registration.pk],
        "registration_cancel": [registration.pk],
    }
    return World(people, draft, arguments)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_are_for_editors(world: World, name: str) -> None:
    url = world.url(name)
    for user in (world.people.owner, world.people.editor):
        assert signed_in(user).get(url).status_code == 200
    assert signed_in(world.people.member).get(url).status_code == (
        200 if name in FOR_VIEWERS else 403
    )
    assert signed_in(world.people.stranger).get(url).status_code == 404
    assert Client().get(url)["Location"].startswith(reverse("login"))


@pytest.mark.parametrize("name", sorted(WRITES))
def test_only_editors_change_something_and_a_get_never_does(world: World, name: str) -> None:
    url = world.url(name)
    assert signed_in(world.people.owner).get(url).status_code == 405
    assert signed_in(world.people.member).post(url).status_code == 403
    assert signed_in(world.people.stranger).post(url).status_code == 404
    assert keys_of(world.draft) == ["q1", "q2"]


@pytest.mark.parametrize(
    "name",
    [
        "environment_new",
        "environment_create",
        "draft_settings",
        "draft_task",
        "draft_task_new",
        "draft_upload",
        "upload_preview",
        "draft_publish",
    ],
)
def test_forms_are_not_taken_from_viewers(world: World, name: str) -> None:
    assert signed_in(world.people.member).post(world.url(name)).status_code == 403
    assert EnvironmentDraft.objects.get().revision == world.draft.revision


@pytest.mark.parametrize("name", sorted(PAGES - {"environment_new", "environment_create"}))
def test_what_belongs_to_another_project_does_not_exist_here(world: World, name: str) -> None:
    elsewhere = world.people.stranger.memberships.get().project_id
    url = reverse(f"web:{name}", args=[elsewhere, *world.arguments[name]])
    assert signed_in(world.people.stranger).get(url).status_code == 404


def test_viewers_see_no_way_to_edit(world: World) -> None:
    page = reverse("web:environment", args=[world.people.project.pk, world.draft.environment.slug])
    html = signed_in(world.people.member).get(page).content.decode()
    assert world.url("draft") not in html
    assert world.url("environment_export") not in html
    assert world.url("draft") in signed_in(world.people.editor).get(page).content.decode()
