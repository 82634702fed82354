"""A backup that an earlier version wrote is restored by this one, and brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection

from orchestrator.moving import backup, schema
from orchestrator.moving.restore import restore
from orchestrator.runs.models import Rollout
from tests.moving.installations import sqlite_installation
from tests.releases.releases import NAMES, unpack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="of SQLite"),
]


def test_it_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.zip"
    with sqlite_installation(tmp_path / "old") as old:
        unpack(NAMES[-1], old.database)
        manifest = backup.write(path, data=old.data, alias=old.alias)
    with sqlite_installation(tmp_path / "new") as new:
        restore(path, data=new.data, alias=new.alias)
        assert schema.is_up_to_date(new.alias)
        assert Rollout.objects.using(new.alias).count() == manifest.rows["runs_rollout"] > 500
