"""Private paths in the sandbox: shown to it, and to nobody else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.environments.sandbox import detect
from orchestrator.environments.sandbox.service import ServiceSpec, service_command
from tests.environments.conftest import needs_bubblewrap

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(os.geteuid() != 0, reason="another user's sandbox reads what that user may"),
]


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "hello.txt").write_text("hello\n")
    (folder / "single.txt").write_text("single\n")
    folder.chmod(0o700)
    return folder


def served(tmp_path: Path, spec: ServiceSpec) -> subprocess.CompletedProcess[str]:
    command = service_command(
        spec, spec_path=tmp_path / "spec.json", decisions=tmp_path / "decisions.jsonl"
    )
    return subprocess.run(
        [part.replace("{socket}", str(tmp_path / "s.sock")) for part in command],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_server_reads_what_lies_below_a_private_folder(tmp_path: Path, private: Path) -> None:
    script = (
        "cat /opt/app/hello.txt /opt/single.txt; rm -rf /opt/app; echo x > /opt/single.txt; id -u"
    )
    spec = ServiceSpec(
        command=("/bin/sh", "-c", script),
        readable=(
            (str(private / "code"), "/opt/app"),
            (str(private / "single.txt"), "/opt/single.txt"),
        ),
    )
    done = served(tmp_path, spec)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["hello", "single"]
    assert "65534" in lines
    assert "Read-only" in done.stdout
    assert (private / "code" / "hello.txt").read_text() == "hello\n"
    assert (private / "single.txt").read_text() == "single\n"


def test_nothing_is_left_on_the_host(tmp_path: Path, private: Path) -> None:
    def staged() -> set[str]:
        return {p.name for p in Path("/tmp").glob("switchback-stage-*")}

    mounts = Path("/proc/self/mountinfo").read_text()
    before = staged()
    spec = ServiceSpec(
        command=("/bin/sh", "-c", "exit 3"), readable=((str(private / "code"), "/opt/app"),)
    )
    assert served(tmp_path, spec).returncode == 3
    assert Path("/proc/self/mountinfo").read_text() == mounts
    # Other servers of this machine may come and go meanwhile.
    assert not {name for name in staged() - before if not Path("/proc", name[17:]).exists()}


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    spec = ServiceSpec(command=("/bin/true",), readable=((str(tmp_path / "absent"), "/opt/x"),))
    done = served(tmp_path, spec)
    assert done.returncode == 2
    assert f"{tmp_path}/absent cannot be shown" in done.stdout


def test_detection_says_that_commands_are_not_root() -> None:
    assert detect(environ={}).drops_root
