"""Runs on environments that were registered as code: from the folder to the score."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.isolation import isolation_of
from orchestrator.environments.models import RegistrationState
from orchestrator.environments.packages.services import register_source
from orchestrator.jobs.execution import run_attempt
from orchestrator.runs import queries
from orchestrator.runs.models import RunState
from tests.base import People
from tests.doubles.openenv_servers import DOUBLES
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel
from tests.runs.drive import execute, make_run, rollouts

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]


def test_a_registered_folder_is_run_in_the_sandbox(
    people: People, make_model: MakeModel, tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path / "data"
    folders = tmp_path / "folders"
    settings.PACKAGE_FOLDERS = [str(folders)]
    server = folders / "fault_env" / "server"
    server.mkdir(parents=True)
    shutil.copyfile(DOUBLES / "fault_env.py", server / "app.py")
    registration = register_source(
        actor=people.editor,
        project=people.project,
        name="Mine",
        kind="package",
        source={"path": str(server.parent)},
        resources={"slots": 4},
    )
    assert registration.job_id is not None
    run_attempt(registration.job_id)
    registration.refresh_from_db()
    assert registration.state == RegistrationState.DONE, registration.message
    version = registration.version
    assert version is not None
    assert version.source["capacity"] == {"asked": 4, "measured": 4}
    run = execute(
        make_run(people.project, version=version, model_url=make_model().url, replicates=3)
    )
    assert run.state == RunState.COMPLETED, [r.message for r in rollouts(run)]
    assert queries.tally(run.pk).mean == 1.0
    isolation = isolation_of(version)
    assert (isolation["mode"], isolation["is_weak"]) == ("bubblewrap", False)
