"""`switchback export project`: asked for, followed to its end, and taken as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.keeping.archive.reading import look_into
from orchestrator.projects.models import Role, User
from orchestrator.projects.services import issue_token
from switchback_cli import account, options
from switchback_cli.client import Server
from switchback_cli.main import main
from tests.base import People
from tests.cli.room import InProcess

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),
]


def signed_in(people: People, user: User, role: Role, patch: pytest.MonkeyPatch) -> None:
    made = account.server_of

    def work(_: float) -> None:
        for job in Job.objects.filter(state=JobState.QUEUED):
            run_attempt(job.pk)

    def served(url: str | None, token: str | None, **more: Any) -> Server:
        return made(url, token, transport=InProcess(), pause=work, **more)

    patch.setattr(options, "server_of", served)
    patch.setenv("SWITCHBACK_URL", "http://testserver")
    token = issue_token(actor=user, project_id=people.project.pk, name="cli", role=role)
    patch.setenv("SWITCHBACK_TOKEN", token.secret)


def test_a_project_is_taken_as_one_file(
    people: People,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed_in(people, people.owner, Role.ADMIN, monkeypatch)
    path = tmp_path / "words.zip"
    words = ("export", "project", str(people.project.pk))
    assert main(words) != 0
    assert "--output" in capsys.readouterr().err
    assert main((*words, "-o", str(path))) == 0, capsys.readouterr().err
    assert look_into(path).project == people.project.name
    assert f"{path.name}: 0 rows" in capsys.readouterr().err.replace("\n", "")
    assert main((*words, "-o", str(path))) != 0
    assert "exists" in capsys.readouterr().err


def test_an_editor_takes_no_project(
    people: People,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed_in(people, people.editor, Role.EDITOR, monkeypatch)
    words = ("export", "project", str(people.project.pk), "-o", str(tmp_path / "a.zip"))
    assert main(words) != 0
    assert "HTTP 403" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
