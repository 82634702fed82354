from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from orchestrator.checks import file_system_of

pytestmark = pytest.mark.django_db


def ids() -> set[str | None]:
    found = run_checks(databases=["default"])
    return {message.id for message in found if not message.is_silenced()}


def test_the_default_configuration_is_clean() -> None:
    assert not ids()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"STACK": "embeded"}, "switchback.E001"),
        ({"STACK": "scale", "DATABASE_URL": None}, "switchback.E002"),
        ({"STACK": "scale", "BROKER_URL": None}, "switchback.E003"),
        ({"DATA_DIR": Path("/nonexistent/data")}, "switchback.E004"),
        ({"SECRET_KEY": "short"}, "switchback.E010"),
        ({"TIME_ZONE": "America/Chicago"}, "switchback.E009"),
    ],
)
def test_each_mistake_has_its_check(settings: Any, changes: dict[str, Any], expected: str) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    assert expected in ids()


def test_database_settings_that_harm_are_refused(settings: Any) -> None:
    settings.DATABASES["default"]["ATOMIC_REQUESTS"] = True
    settings.DATABASES["default"]["CONN_MAX_AGE"] = None
    try:
        assert {"switchback.E007", "switchback.E008"} <= ids()
    finally:
        settings.DATABASES["default"]["ATOMIC_REQUESTS"] = False
        settings.DATABASES["default"]["CONN_MAX_AGE"] = 0


def test_the_file_system_is_that_of_the_deepest_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nhost:/x /mnt/my\\040share nfs4 rw 0 0\n"
    assert file_system_of(Path("/mnt/my share/data"), lambda: mounts) == "nfs4"
    assert file_system_of(Path("/home/me"), lambda: mounts) == "ext4"
