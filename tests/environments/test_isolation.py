"""What a run stores of its isolation, and what `manage.py doctor` finds."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from orchestrator.environments import diagnosis
from orchestrator.environments.diagnosis import findings
from orchestrator.environments.isolation import isolation_of
from orchestrator.environments.models import EnvironmentKind, EnvironmentVersion
from orchestrator.environments.sandbox.detection import try_bubblewrap
from tests.base import People
from tests.environments.conftest import needs_bubblewrap
from tests.web.build import make_environment

NAMES = [
    "bubblewrap", "sandbox", "control groups", "egress proxy", "docker", "disk: data folder",
    "disk: temporary folder", "clock",
]  # fmt: skip


@pytest.fixture
def version(people: People) -> EnvironmentVersion:
    return make_environment(people.project)


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine on which nothing is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    try_bubblewrap.cache_clear()
    yield
    try_bubblewrap.cache_clear()


@needs_bubblewrap
@pytest.mark.django_db
def test_a_terminal_version_runs_in_the_sandbox(version: EnvironmentVersion) -> None:
    version.resources = {"memory_mb": 256}
    found = isolation_of(version)
    assert (found["mode"], found["is_weak"]) == ("bubblewrap", False)
    assert found["limits"]["memory_mb"] == 256
    assert found["limits"]["network"] == "none"
    assert found["limits"]["command"]["processes"] == 24
    assert json.loads(json.dumps(found)) == found, "a run can store it"


@needs_bubblewrap
@pytest.mark.django_db
def test_an_open_network_is_weak_and_a_list_is_not(version: EnvironmentVersion) -> None:
    version.resources = {"network": {"mode": "open"}}
    found = isolation_of(version)
    assert found["is_weak"] and "open network" in found["reason"]
    version.resources = {"network": {"mode": "allow-list", "allowed_hosts": ["api.example.org"]}}
    found = isolation_of(version)
    assert not found["is_weak"] and found["limits"]["allowed_hosts"] == ["api.example.org"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (EnvironmentKind.URL, "remote"),
        (EnvironmentKind.DOCKER, "docker"),
        (EnvironmentKind.ACA, "aca"),
        (EnvironmentKind.QA, "answers"),
        (EnvironmentKind.SQL, "statements"),
    ],
)
def test_other_kinds_say_what_keeps_them_apart(
    version: EnvironmentVersion, kind: EnvironmentKind, mode: str
) -> None:
    version.environment.kind = kind
    found = isolation_of(version)
    assert (found["mode"], found["is_weak"]) == (mode, False)
    assert found["reason"]


@pytest.mark.django_db
@pytest.mark.usefixtures("without_tools")
def test_without_a_sandbox_isolation_is_weak_and_says_why(version: EnvironmentVersion) -> None:
    found = isolation_of(version)
    assert (found["mode"], found["is_weak"]) == ("unsandboxed", True)
    assert "not found" in found["reason"]


@needs_bubblewrap
def test_the_doctor_finds_a_machine_fit(tmp_path: Path) -> None:
    found = {finding.name: finding for finding in findings(tmp_path, {})}
    assert set(NAMES) <= set(found)
    assert found["sandbox"].level == "ok"
    assert found["egress proxy"].level == "ok"
    assert all(f.level != "fail" for f in found.values()), found
    assert all(f.fix for f in found.values() if f.level in ("warn", "fail"))


@pytest.mark.usefixtures("without_tools")
def test_the_doctor_fails_where_commands_cannot_run_and_tells_the_fix() -> None:
    out = StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("doctor", "--json", stdout=out)
    assert caught.value.code == 1
    told = json.loads(out.getvalue())
    found = {finding["name"]: finding for finding in told["findings"]}
    assert told["ok"] is False
    assert found["sandbox"]["level"] == "fail"
    assert "apt-get install bubblewrap" in found["bubblewrap"]["fix"]


@pytest.mark.usefixtures("without_tools")
def test_the_opt_out_is_a_warning_in_capitals(tmp_path: Path) -> None:
    found = {f.name: f for f in findings(tmp_path, {"SWITCHBACK_UNSANDBOXED": "1"})}
    assert found["sandbox"].level == "warn" and "WITHOUT ISOLATION" in found["sandbox"].text
    assert found["bubblewrap"].level == "warn"


def test_the_doctor_speaks_in_lines() -> None:
    out = StringIO()
    # Whether this machine is fit is not the question here.
    with contextlib.suppress(SystemExit):
        call_command("doctor", stdout=out)
    lines = out.getvalue().splitlines()
    assert len(lines) >= len(NAMES) - 1
    assert all(line[:4] in ("ok  ", "note", "WARN", "FAIL") for line in lines)


def test_a_clock_before_this_software_is_wrong() -> None:
    assert diagnosis._clock(lambda: 86400.0).level == "fail"


def test_little_space_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)
    for free_mb, level in ((100, "fail"), (1000, "warn"), (9000, "ok")):
        told = usage._replace(free=free_mb * 2**20)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, told=told: told)
        assert diagnosis._disk("disk", tmp_path / "absent").level == level


@pytest.mark.django_db
def test_tools_of_somebody_elses_server_are_not_ours_to_limit(version: EnvironmentVersion) -> None:
    version.environment.kind = EnvironmentKind.TOOLS
    version.source = {"server": {"url": "https://tools.example.org/mcp"}}
    assert isolation_of(version)["mode"] == "remote"
    version.source["grade"] = "def grade(state, answer, task): return 1"
    assert isolation_of(version)["mode"] in ("bubblewrap", "unsandboxed")
