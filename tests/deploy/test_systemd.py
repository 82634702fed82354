"""The units: known to systemd, hardened, and each runs something that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.reading import DEPLOY, assert_runs, settings_known

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RUNS_AGENTS = {"switchback.service", "switchback-worker@.service"}


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_there_is_one_for_each_process() -> None:
    assert {unit.name for unit in UNITS} == {
        *RUNS_AGENTS,
        "switchback-web.service",
        "switchback-sweep.service",
    }


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_runs_what_there_is_and_may_do_little(unit: Path) -> None:
    found = settings(unit)
    for command in [*found["ExecStart"], *found.get("ExecStartPre", [])]:
        program, *arguments = command.split()
        assert program == "/opt/switchback/.venv/bin/python"
        assert_runs(["python", *arguments])
    for name, wanted in {
        "User": "switchback",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "StateDirectory": "switchback",
        "UMask": "0077",
    }.items():
        assert found[name] == [wanted], name
    # bubblewrap needs namespaces, and control groups of its own.
    runs_agents = unit.name in RUNS_AGENTS
    assert ("RestrictNamespaces" not in found) == runs_agents
    assert ("Delegate" in found) == runs_agents
    variables = {
        name
        for line in found["Environment"]
        for name in re.findall(r"(\w+)=", line)
        if name.startswith("SWITCHBACK_")
    }
    assert variables <= settings_known()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_knows_every_line(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    # Its program is not installed here; everything else is looked at.
    text = unit.read_text(encoding="utf-8").replace("/opt/switchback/.venv/bin/python", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(text, encoding="utf-8")
    name = str(copy).replace("@.", "@1.")
    if name != str(copy):
        Path(name).write_text(text, encoding="utf-8")
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", name], capture_output=True, text=True, timeout=120
    )
    assert not [line for line in answer.stderr.splitlines() if unit.stem.partition("@")[0] in line]
    assert answer.returncode == 0, answer.stderr
