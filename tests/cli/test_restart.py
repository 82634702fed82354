"""The server is killed while a gate runs and started again: the command line gets the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from orchestrator.gates.models import Gate
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout
from tests.base import People
from tests.climbs.ladder import FAIL
from tests.doubles.model_server import Asked
from tests.gates.build import AFTER, BEFORE
from tests.live import MakeStack
from tests.runs.conftest import MakeModel, fault_url, make_model
from tests.runs.drive import FINISH, assert_gapless, make_endpoint, make_rubric, make_version
from tests.waiting import wait_until

__all__ = ["fault_url", "make_model"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
FAST_LEASES = {
    "SWITCHBACK_JOB_LEASE_S": "3",
    "SWITCHBACK_JOB_BEAT_S": "0.5",
    "SWITCHBACK_JOB_GRACE_S": "1",
}
LIMIT_S = 240.0


def thinks_first(asked: Asked) -> str:
    """Solves everything once it is told to think; slow enough that a kill finds it at work."""
    threading.Event().wait(0.2)
    return FINISH if "Think first" in asked.messages[0][1] else FAIL


def ended() -> int:
    return Rollout.objects.exclude(state__in=OPEN_ROLLOUT_STATES).count()


def has_come_to(target: int, command: subprocess.Popen[str]) -> bool:
    return ended() >= target or command.poll() is not None


def test_a_killed_server_costs_no_verdict(
    people: People, fault_url: str, make_model: MakeModel, make_stack: MakeStack, tmp_path: Path
) -> None:
    model = make_model(thinks_first)
    version = make_version(people.project, fault_url, tasks=12)
    version.settings = {}
    version.save(update_fields=["settings"])
    make_rubric(people.project)
    make_endpoint(people.project, model.url, name="small")
    token = issue_token(
        actor=people.editor, project_id=people.project.pk, name="ci", role=Role.EDITOR
    ).secret
    for name, text in (("before", BEFORE), ("after", AFTER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "instructions.md").write_text(text)
    stack = make_stack(arguments=["--no-model"], environ=FAST_LEASES)
    stack.start()
    command = [sys.executable, "-m", "switchback_cli", "gate"]
    command += ["--environment", version.environment.slug, "--split", "test"]
    command += ["--rubric", "reward", "--model", "small", "--rollouts", "240"]
    command += ["--harness", str(tmp_path / "after"), "--baseline", str(tmp_path / "before")]
    waiting = subprocess.Popen(
        [*command, "--json", "-"],
        cwd=django_settings.BASE_DIR,
        env={**os.environ, "SWITCHBACK_URL": stack.url, "SWITCHBACK_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for target in (5, 30):
            wait_until(
                partial(has_come_to, target, waiting),
                limit_s=LIMIT_S,
                what=f"{target} rollouts; {stack.output[-1000:]}",
            )
            stack.discard()
            stack.start()
        out, err = waiting.communicate(timeout=LIMIT_S)
    finally:
        waiting.kill()
    assert waiting.returncode == 0, err
    assert "Waiting for the server" in err and "The server is back." in err
    answer = json.loads(out)
    assert (answer["verdict"], answer["decision"]["mean"]) == ("better", 1.0)
    gate = Gate.objects.get()
    keys = list(gate.gate_runs.values_list("look", "side"))
    assert len(keys) == len(set(keys)) == len(gate.decisions)
    assert_gapless()
