"""From a source to an environment: the service, the job, and the operator's command."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.http import Http404

from orchestrator.environments import serving
from orchestrator.environments.errors import SourceError
from orchestrator.environments.models import (
    Environment,
    EnvironmentVersion,
    RegistrationState,
    SourceRegistration,
)
from orchestrator.environments.packages.queries import open_registrations
from orchestrator.environments.packages.services import cancel_registration, register_source
from orchestrator.events.models import Event
from orchestrator.jobs import lease
from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.registry import JobContext, handler_for
from tests.base import People, make_people, make_user
from tests.doubles.openenv_servers import DOUBLES
from tests.environments.conftest import needs_bubblewrap
from tests.environments.scaffold import write_scaffold

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scaffold(tmp_path_factory.mktemp("scaffold"))


@pytest.fixture
def people(tmp_path: Path, settings: Any) -> People:
    settings.DATA_DIR = tmp_path / "data"
    settings.PACKAGE_FOLDERS = []
    return make_people()


def register(people: People, folder: Path, **overrides: Any) -> SourceRegistration:
    asked = {
        "actor": people.editor,
        "project": people.project,
        "name": "Demo",
        "kind": "package",
        "source": {"path": str(folder)},
        **overrides,
    }
    return register_source(**asked)


def work_on(registration: SourceRegistration) -> SourceRegistration:
    assert registration.job_id is not None
    run_attempt(registration.job_id)
    registration.refresh_from_db()
    return registration


def events(registration: SourceRegistration) -> list[tuple[str, dict[str, Any]]]:
    rows = Event.objects.filter(stream_id=registration.stream_id).order_by("seq")
    return [(row.kind, row.payload) for row in rows]


@needs_bubblewrap
def test_a_folder_becomes_an_environment_after_an_episode_was_reset(
    people: People, scaffold: Path, settings: Any
) -> None:
    settings.PACKAGE_FOLDERS = [str(scaffold.parent)]
    registration = register(people, scaffold, description="Say something.")
    assert list(open_registrations(people.project.pk)) == [registration]
    work_on(registration)
    assert registration.state == RegistrationState.DONE, registration.message
    version = registration.version
    assert version is not None
    assert (version.environment.name, version.environment.kind) == ("Demo", "package")
    assert version.description == "Say something."
    assert version.settings["reward_range"] == [0.0, 1.0]
    assert version.source["capacity"] == {"asked": 8, "measured": 1}
    assert version.source["seed"] == "ignored"
    assert [task.key for task in version.tasks.all()] == ["default"]
    assert serving.server_spec(version).capacity == 1
    kinds = events(registration)
    assert kinds[-1][0] == "registration.ended"
    assert kinds[-1][1]["version"] == version.pk
    assert {"text": "Starting a server and resetting an episode"} in [p for _, p in kinds]
    assert not open_registrations(people.project.pk).exists()


@needs_bubblewrap
def test_what_cannot_be_served_is_told_and_makes_no_environment(
    people: People, tmp_path: Path, settings: Any
) -> None:
    settings.PACKAGE_FOLDERS = [str(tmp_path)]
    folder = tmp_path / "broken_env"
    (folder / "server").mkdir(parents=True)
    (folder / "server" / "app.py").write_text("import not_to_be_found")
    registration = work_on(register(people, folder))
    assert registration.state == RegistrationState.FAILED
    assert "No module named 'not_to_be_found'" in registration.message
    assert not Environment.objects.exists()
    assert events(registration)[-1][1]["message"] == registration.message
    # The job did its work: there is nothing to try again.
    assert registration.job is not None
    assert registration.job.state == "done"


SHARING = """
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Say(Action):
    message: str = ""


class Said(Observation):
    text: str = ""


class Sharing(Environment):
    said = []

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.episode = State(episode_id=episode_id)
        return Said(text=" ".join({source}))

    def step(self, action, timeout_s=None, **kwargs):
        {source}.append(action.message)
        return Said(text=" ".join({source}), reward=1.0)

    @property
    def state(self):
        return self.episode


app = create_app(Sharing, Say, Said, env_name="sharing")
"""


@needs_bubblewrap
@pytest.mark.parametrize("is_shared", [True, False])
def test_more_episodes_than_promised_need_a_proof_of_isolation(
    people: People, tmp_path: Path, settings: Any, is_shared: bool
) -> None:
    settings.PACKAGE_FOLDERS = [str(tmp_path)]
    folder = tmp_path / "sharing_env"
    (folder / "server").mkdir(parents=True)
    own = "self.__dict__.setdefault('own', [])"
    code = SHARING.format(source="Sharing.said" if is_shared else own)
    (folder / "server" / "app.py").write_text(code)
    source = {"path": str(folder), "raise_capacity": True}
    registration = work_on(register(people, folder, source=source, resources={"slots": 3}))
    if is_shared:
        assert registration.state == RegistrationState.FAILED
        assert "raise_capacity: it is not shown that episodes" in registration.message
        return
    assert registration.state == RegistrationState.DONE, registration.message
    assert registration.version is not None
    assert registration.version.source["capacity"] == {"asked": 3, "measured": 3}
    assert "interleaved episodes" in registration.version.source["isolation"]


def test_a_folder_of_the_server_is_for_operators(people: People, scaffold: Path) -> None:
    with pytest.raises(SourceError, match="may be registered by an operator"):
        register(people, scaffold)
    with pytest.raises(SourceError, match="data: folders of the server may"):
        register(people, scaffold, source={"requirement": "a", "app": "a:b", "data": "/etc"})
    operator = make_user(is_superuser=True)
    assert register(people, scaffold, actor=operator).state == RegistrationState.QUEUED


def test_the_servers_own_data_is_for_nobody(people: People, tmp_path: Path) -> None:
    operator = make_user(is_superuser=True)
    for folder in (tmp_path, tmp_path / "data", tmp_path / "data" / "env", Path("/")):
        with pytest.raises(SourceError, match="this server's own data"):
            register(people, folder, actor=operator)


def test_strangers_and_viewers_register_nothing(people: People, scaffold: Path) -> None:
    with pytest.raises(Http404):
        register(people, scaffold, actor=people.stranger)
    with pytest.raises(PermissionDenied):
        register(people, scaffold, actor=people.member)
    assert not SourceRegistration.objects.exists()


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"name": " "}, "name: an environment needs a name"),
        ({"kind": "url"}, "kind: url is not one of"),
        ({"resources": {"memory_mb": 1}}, "resources: memory_mb"),
        ({"resources": {"colour": 1}}, "resources: unknown: colour"),
        ({"source": {}}, "path: give a folder"),
        (
            {
                "kind": "docker",
                "source": {"image": "a"},
                "resources": {"network": {"mode": "allow-list", "allowed_hosts": ["x.org"]}},
            },
            "resources: Docker cannot allow names",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    people: People, scaffold: Path, overrides: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SourceError, match=reason):
        register(people, scaffold, **overrides)


def test_a_name_is_given_once(people: People, scaffold: Path) -> None:
    Environment.objects.create(project=people.project, slug="demo", name="Demo", kind="url")
    with pytest.raises(SourceError, match="already has an environment named Demo"):
        register(people, scaffold)


def test_a_registration_that_waits_can_be_cancelled(people: People, scaffold: Path) -> None:
    registration = register(people, scaffold, actor=make_user(is_superuser=True))
    with pytest.raises(PermissionDenied):
        cancel_registration(actor=people.member, registration=registration)
    for _ in range(2):
        cancel_registration(actor=people.editor, registration=registration)
    registration.refresh_from_db()
    assert registration.state == RegistrationState.CANCELLED
    work_on(registration)
    assert registration.state == RegistrationState.CANCELLED
    assert [kind for kind, _ in events(registration)] == ["registration.ended"]


def test_a_registration_at_work_can_be_cancelled(people: People, scaffold: Path) -> None:
    registration = register(people, scaffold, actor=make_user(is_superuser=True))
    assert registration.job_id is not None
    claimed = lease.claim(registration.job_id)
    assert claimed is not None
    ctx = JobContext(claimed.job.pk, claimed.job.spec, claimed.fence, threading.Event())
    ctx.cancel.set()
    with pytest.raises(Cancelled):
        handler_for(claimed.job.kind).run(ctx)
    lease.cancelled(claimed.fence)
    registration.refresh_from_db()
    assert registration.state == RegistrationState.CANCELLED
    assert not Environment.objects.exists()


def test_an_image_becomes_an_environment(
    people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "docker"
    (state / "images").mkdir(parents=True)
    known = {"id": "sha256:1", "digests": ["r/fault@sha256:2"], "target": "fault_env"}
    (state / "images" / "fault_1.json").write_text(json.dumps(known))
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {DOUBLES / "docker.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(state))
    registration = work_on(register(people, tmp_path, kind="docker", source={"image": "fault:1"}))
    assert registration.state == RegistrationState.DONE, registration.message
    version = registration.version
    assert version is not None
    assert version.source["pinned"] == "r/fault@sha256:2"
    assert version.source["capacity"] == {"asked": 8, "measured": 8}
    assert version.source["seed"] == "honoured"
    assert not list(state.glob("container-*"))


@needs_bubblewrap
def test_the_operators_command_takes_a_folder_as_it_is(people: People, scaffold: Path) -> None:
    said = io.StringIO()
    project = str(people.project.pk)
    with pytest.raises(CommandError, match="createsuperuser"):
        call_command("import_environment", str(scaffold), "--project", project)
    make_user(is_superuser=True)
    call_command("import_environment", str(scaffold), "--project", project, stdout=said)
    version = EnvironmentVersion.objects.get()
    assert version.environment.name == "demo_env"
    assert "Making a virtual environment" in said.getvalue()
    assert "demo_env v1 of project" in said.getvalue()
    with pytest.raises(CommandError, match="already has an environment named demo_env"):
        call_command("import_environment", str(scaffold), "--project", project)
    with pytest.raises(CommandError, match="There is no project 0"):
        call_command("import_environment", str(scaffold), "--project", "0")
