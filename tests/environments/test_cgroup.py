"""Control groups: limits on a whole tree, on both versions of the kernel's interface."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.cgroup import Allowance, Group, Place, make

ALLOWANCE = Allowance(memory_bytes=64 * 2**20, processes=8, cpus=0.5)
V1 = {
    "memory": ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"],
    "pids": ["pids.max", "pids.events"],
    "cpu": ["cpu.cfs_period_us", "cpu.cfs_quota_us"],
}
V2 = [
    "memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "pids.max",
    "pids.events", "cpu.max",
]  # fmt: skip


class FakeKernel:
    """A folder that fills new groups with the files of their controllers, as the kernel does."""

    def __init__(self, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        real = Path.mkdir

        def mkdir(path: Path, *args: int) -> None:
            real(path)
            for name in [*files, "cgroup.procs"]:
                path.joinpath(name).write_text("")

        monkeypatch.setattr(Path, "mkdir", mkdir)


def values(group: Group) -> dict[str, str]:
    return {
        file.name: text
        for path in group.paths
        for file in path.iterdir()
        if (text := file.read_text())
    }


def test_version_2_has_one_group_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeKernel(V2, monkeypatch)
    group = make(ALLOWANCE, {name: Place(tmp_path, True) for name in cgroup.CONTROLLERS})
    assert group is not None
    assert len(group.paths) == 1
    assert values(group) == {
        "memory.max": str(64 * 2**20),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "8",
        "cpu.max": "50000 100000",
    }
    group.paths[0].joinpath("memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    group.paths[0].joinpath("pids.events").write_text("max 1\n")
    assert group.struck(own_processes=2) == ["memory limit of 64 MiB", "limit of 6 processes"]


def test_version_1_has_one_for_each_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeKernel([name for names in V1.values() for name in names], monkeypatch)
    places = {}
    for name in cgroup.CONTROLLERS:
        os.mkdir(tmp_path / name)
        places[name] = Place(tmp_path / name, False)
    group = make(ALLOWANCE, places)
    assert group is not None
    assert len(group.paths) == 3
    assert values(group)["cpu.cfs_quota_us"] == "50000"
    assert values(group)["memory.memsw.limit_in_bytes"] == str(64 * 2**20)
    group.folders["memory"].joinpath("memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert group.struck() == ["memory limit of 64 MiB"]


def test_where_a_limit_cannot_be_set_there_is_no_group(tmp_path: Path) -> None:
    """A folder of an ordinary file system: the files that limits are written to do not appear."""
    assert make(ALLOWANCE, {"memory": Place(tmp_path, True)}) is None
    assert make(ALLOWANCE, {"memory": Place(tmp_path / "absent", True)}) is None
    assert make(ALLOWANCE, {}) is None
    assert not any(tmp_path.iterdir())


def test_groups_of_ended_processes_are_swept(tmp_path: Path) -> None:
    for name in ("switchback-4194304-aa", f"switchback-{os.getpid()}-bb", "other"):
        (tmp_path / name).mkdir()
    cgroup._sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "other",
        f"switchback-{os.getpid()}-bb",
    ]


def test_mounts_are_found_in_a_container_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {
        "/proc/self/mountinfo": (
            "30 23 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
            "31 23 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
        ),
        "/proc/self/cgroup": "4:memory:/docker/abc/inner\n0::/user.slice/x.scope\n",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: lines[str(path)])
    assert next(cgroup._candidates("memory")).folder == Path("/sys/fs/cgroup/memory/inner")
    found = list(cgroup._candidates("pids"))
    assert [place.is_unified for place in found] == [True, True]
    assert found[0].folder == Path("/sys/fs/cgroup/unified/user.slice/x.scope")
    assert found[1].folder == Path("/sys/fs/cgroup/unified/user.slice")


@pytest.mark.skipif("pids" not in cgroup.usable(), reason="no control groups here")
def test_a_real_group_limits_and_is_removed() -> None:
    group = make(Allowance(processes=3))
    assert group is not None
    paths = group.paths
    script = f"echo 0 > {paths[0]}/cgroup.procs; for i in 1 2 3 4 5; do sleep 9 & done; echo on"
    child = subprocess.Popen(["/bin/sh", "-c", script], stderr=subprocess.DEVNULL)
    child.wait(10)
    assert group.struck() == ["limit of 3 processes"]
    group.kill()
    group.close()
    cgroup._remove_last()
    assert not any(path.exists() for path in paths)
