from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from orchestrator.keeping.models import RetentionRun
from orchestrator.keeping.retention import services
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Project
from tests.base import People
from tests.keeping.filled import Filler

pytestmark = pytest.mark.django_db


def said(*args: object) -> str:
    out = io.StringIO()
    call_command(*map(str, args), stdout=out)
    return out.getvalue()


def test_a_project_is_written_and_read_by_commands(people: People, tmp_path: Path) -> None:
    Filler(people.project).fill()
    path = tmp_path / "words.zip"
    told = said("export_project", people.project.pk, path)
    assert f"{path}: " in told and "without the key of the endpoint" in told
    with pytest.raises(CommandError, match="exists; name another file"):
        said("export_project", people.project.pk, path)
    told = said("import_project", path, "--owner", people.editor.username, "--name", "Twin")
    twin = Project.objects.get(name="Twin")
    assert f"project {twin.pk} 'Twin'" in told and "give a key again" in told
    assert role_in(people.editor, twin.pk) == "admin"


def test_mistakes_are_named(people: People, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"words")
    projects = Project.objects.count()
    for args, told in (
        (("export_project", 10**9, tmp_path / "b.zip"), "no project"),
        (("import_project", tmp_path / "a.zip", "--owner", "nobody"), "no user 'nobody'"),
        (("import_project", tmp_path / "c.zip", "--owner", people.owner.username), "no file"),
        (("import_project", tmp_path / "a.zip", "--owner", people.owner.username), "not a zip"),
        (("retain", people.project.pk), "no rule of retention"),
    ):
        with pytest.raises(CommandError, match=told):
            said(*args)
    assert Project.objects.count() == projects


def test_rules_are_tried_dry(people: People) -> None:
    services.set_rule(actor=people.owner, project=people.project, what="runs", days=9)
    assert "runs: 0 due (0 bytes)" in said("retain", people.project.pk, "--dry-run")
    assert RetentionRun.objects.get().is_dry
