"""A project goes from SQLite to PostgreSQL by its file, and has the same content there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from django.db import connection

from orchestrator.keeping.archive.manifest import MEMBER, Manifest, read_manifest
from orchestrator.keeping.archive.writing import write_archive
from tests.base import make_project
from tests.keeping.filled import Filler
from tests.postgres import postgres_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stack,
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="goes out of SQLite"),
]
ROOT = Path(__file__).parents[2]
TRY = """
import django; django.setup()
import sys
from pathlib import Path
from orchestrator.keeping import use
from orchestrator.keeping.archive.rows import discard
from orchestrator.keeping.models import RetentionRule, RetentionRun, What
from orchestrator.keeping.retention.looking import look
from orchestrator.projects.models import Project
from orchestrator.projects.storage import storage_of
project = Project.objects.get(name="Twin")
use.measure()
assert storage_of(project.pk).total > 0
run = RetentionRun.objects.create(project=project, is_dry=False, state="completed")
for what in What.values:
    rule = RetentionRule.objects.create(project=project, what=what, days=1, grace_days=0)
    look(rule, run)
discard(project)
"""


def manifest(path: Path) -> Manifest:
    with zipfile.ZipFile(path) as archive:
        return read_manifest(archive.read(MEMBER))


def test_a_project_has_the_same_content_on_postgres(tmp_path: Path) -> None:
    project = make_project(name="Words")
    Filler(project).fill(per_table=4)
    write_archive(project=project, path=tmp_path / "a.zip", version="1")
    with postgres_server() as url:
        environment = {
            **os.environ,
            "STACK": "scale",
            "DATABASE_URL": url,
            "BROKER_URL": "redis://127.0.0.1:1/0",
            "SWITCHBACK_DATA": str(tmp_path / "data"),
            "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
            "PYTHONPATH": str(ROOT),
        }

        def manage(*words: object) -> None:
            ran = [sys.executable, "manage.py", *map(str, words)]
            subprocess.run(ran, cwd=ROOT, env=environment, check=True, timeout=600)

        manage("migrate", "-v0")
        manage(
            "shell",
            "-v0",
            "-c",
            "from orchestrator.projects.models import User;User.objects.create_user('owner')",
        )
        manage("import_project", tmp_path / "a.zip", "--owner", "owner", "--name", "Twin")
        manage("export_project", 1, tmp_path / "b.zip")
        assert manifest(tmp_path / "b.zip").content == manifest(tmp_path / "a.zip").content
        tried = [sys.executable, "-c", TRY]
        subprocess.run(tried, cwd=ROOT, env=environment, check=True, timeout=600)
