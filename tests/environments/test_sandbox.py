"""The sandbox from the inside: what a command sees, and what stops it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.environments.errors import SandboxError, SandboxUnavailableError
from orchestrator.environments.sandbox import (
    Isolation,
    Limits,
    Sandbox,
    detect,
    folder_size_bytes,
    fresh_folder,
    private_root,
    remove_folder,
)
from orchestrator.environments.sandbox.detection import try_bubblewrap
from tests.environments.conftest import needs_bubblewrap

ISOLATION = detect(environ={})
pytestmark = needs_bubblewrap


@pytest.fixture
def root() -> Iterator[Path]:
    root = private_root()
    yield root
    remove_folder(root)


@pytest.fixture
def folder(root: Path) -> Path:
    return fresh_folder(root, {"notes.txt": "red ice\nblue sea\n"}, ISOLATION)


@pytest.fixture
def box() -> Sandbox:
    return Sandbox(ISOLATION, Limits(wall_s=2))


def _said(box: Sandbox, folder: Path, command: str) -> str:
    return box.run(command, folder).output.decode()


def test_a_command_reads_and_changes_its_folder(box: Sandbox, folder: Path) -> None:
    result = box.run("wc -l notes.txt && echo more >> notes.txt", folder)
    assert (result.output, result.exit_status, result.warning) == (b"2 notes.txt\n", 0, "")
    assert (folder / "notes.txt").read_text() == "red ice\nblue sea\nmore\n"


def test_output_and_errors_come_in_one_stream_with_the_shells_status(
    box: Sandbox, folder: Path
) -> None:
    result = box.run("echo out; cat nothing", folder)
    assert result.output == b"out\ncat: nothing: No such file or directory\n"
    assert result.exit_status == 1
    assert box.run("exit 7", folder).exit_status == 7
    assert box.run("kill -9 $$", folder).exit_status == 137


def test_a_command_runs_as_nobody_without_capabilities(box: Sandbox, folder: Path) -> None:
    assert _said(box, folder, "id -u; id -g").split() == ["65534", "65534"]
    status = _said(box, folder, "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status")
    assert [line.split()[1] for line in status.splitlines()] == ["0" * 16, "0" * 16, "1"]
    assert box.run("unshare --user true", folder).exit_status != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the host's user changes only for root")
def test_on_the_host_it_is_not_root_either(box: Sandbox, folder: Path) -> None:
    box.run("echo x > new.txt", folder)
    assert (folder / "new.txt").stat().st_uid == 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="a variant for root")
def test_where_only_root_has_user_namespaces_the_inside_is_the_same(root: Path) -> None:
    isolation = replace(ISOLATION, drops_root=False)
    folder = fresh_folder(root, {"notes.txt": "red\n"}, isolation)
    result = Sandbox(isolation).run("id -u; echo x >> notes.txt; wc -l notes.txt; ls /root", folder)
    assert result.output.decode().splitlines()[:2] == ["65534", "2 notes.txt"]
    assert b"No such file" in result.output
    status = Sandbox(isolation).run("grep CapEff /proc/self/status", folder).output
    assert status.split()[1] == b"0" * 16


def test_there_is_no_network(box: Sandbox, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "refused" in _said(box, folder, f"echo hi > /dev/tcp/127.0.0.1/{port}")
    interfaces = _said(box, folder, "cut -d: -f1 /proc/net/dev | tail -n +3").split()
    assert interfaces == ["lo"]
    assert box.run("getent hosts example.org", folder).exit_status != 0


def test_the_hosts_files_and_processes_are_absent(box: Sandbox, folder: Path) -> None:
    for path in ("/root", "/home", "/etc/shadow", "/etc/passwd", "/var", __file__, str(folder)):
        assert "No such file" in _said(box, folder, f"ls {path}"), path
    assert _said(box, folder, "ls -A /usr/local /usr/src 2>/dev/null | grep -v :").strip() == ""
    assert int(_said(box, folder, "ls -d /proc/[0-9]* | wc -l")) < 10


def test_nothing_but_the_folder_and_tmp_can_be_written(box: Sandbox, folder: Path) -> None:
    for path in ("/x", "/usr/x", "/usr/local/x", "/etc/x", "/dev/x", "/dev/shm/x"):
        assert box.run(f"echo x > {path}", folder).exit_status != 0, path
    assert box.run("echo x > /tmp/x && cat /tmp/x", folder).output == b"x\n"
    assert box.run("cat /tmp/x", folder).exit_status != 0


def test_the_environment_is_empty_but_for_what_a_shell_needs(
    box: Sandbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    names = {line.partition("=")[0] for line in _said(box, folder, "env").splitlines()}
    assert names == {"PATH", "HOME", "PWD", "TMPDIR", "LC_ALL", "TERM", "SHLVL", "_"}


@pytest.mark.parametrize(
    "command",
    ["sleep 60", "exec >&- 2>&-; sleep 60", "trap '' TERM; while :; do :; done", "cat /dev/tty"],
)
def test_the_time_limit_ends_a_command(folder: Path, command: str) -> None:
    box = Sandbox(ISOLATION, Limits(wall_s=0.5))
    started_at = time.monotonic()
    result = box.run(command, folder)
    assert time.monotonic() - started_at < 20  # far from sixty, on a busy machine too
    if command != "cat /dev/tty":  # there is no terminal: it fails at once
        assert (result.exit_status, result.warning) == (137, "time limit of 0.5 s")


def test_nothing_lives_on_after_a_command(box: Sandbox, folder: Path) -> None:
    result = box.run("(sleep 0.3; echo late > late.txt) & echo done", folder)
    assert (result.output, result.exit_status) == (b"done\n", 0)
    assert box.run("sleep 60 & echo done", folder).warning == ""
    threading.Event().wait(0.5)
    assert not (folder / "late.txt").exists()


def test_a_fork_bomb_is_limited_and_neighbours_work_on(root: Path, folder: Path) -> None:
    box = Sandbox(ISOLATION, Limits(wall_s=1.5))
    other = fresh_folder(root, {"a.txt": "x\n"}, ISOLATION)
    with ThreadPoolExecutor() as threads:
        bomb = threads.submit(box.run, "f(){ f|f& };f; sleep 60", folder)
        threading.Event().wait(0.3)
        assert box.run("cat a.txt | sort | wc -l", other).output == b"1\n"
        result = bomb.result()
    assert b"Resource temporarily unavailable" in result.output
    assert result.warning.startswith("time limit of 1.5 s")


def test_many_commands_at_a_time_do_not_share_the_limit_of_processes(root: Path) -> None:
    box = Sandbox(ISOLATION, Limits(processes=8))
    folders = [fresh_folder(root, {}, ISOLATION) for _ in range(24)]
    with ThreadPoolExecutor(24) as threads:
        command = "sleep 0.3 | sleep 0.3 | sleep 0.3; echo $?"
        results = list(threads.map(lambda f: box.run(command, f), folders))
    assert {r.output for r in results} == {b"0\n"}


def test_a_memory_bomb_ends(box: Sandbox, folder: Path) -> None:
    result = box.run("x=$(head -c 400000000 /dev/zero | tr '\\0' a); echo ${#x}", folder)
    assert b"400000000" not in result.output
    assert result.exit_status != 0 or b"cannot allocate" in result.output


def test_large_files_are_refused(box: Sandbox, folder: Path) -> None:
    assert box.run("head -c 20000000 /dev/zero > big", folder).exit_status != 0
    assert (folder / "big").stat().st_size == Limits().file_bytes
    assert folder_size_bytes(folder) >= Limits().file_bytes
    assert box.run("head -c 20000000 /dev/zero > /tmp/big", folder).exit_status != 0


def test_long_output_is_cut_and_a_flood_ended(box: Sandbox, folder: Path) -> None:
    exact = box.run("head -c 4096 /dev/zero | tr '\\0' a", folder)
    assert (len(exact.output), exact.is_truncated) == (4096, False)
    long = box.run("head -c 5000 /dev/zero | tr '\\0' a", folder)
    assert (len(long.output), long.is_truncated, long.exit_status) == (4096, True, 0)
    flood = box.run("yes", folder)
    assert (len(flood.output), flood.is_truncated, flood.exit_status) == (4096, True, 137)
    assert "output" in flood.warning


def test_two_folders_do_not_see_one_another(box: Sandbox, root: Path, folder: Path) -> None:
    other = fresh_folder(root, {}, ISOLATION)
    box.run("echo mine > secret.txt; ln -s / everything; mkdir -p a; chmod 000 a", folder)
    assert (
        _said(box, other, "ls -A; ls -A ..; find / -name secret.txt 2>/dev/null").count("secret")
        == 0
    )
    remove_folder(folder)
    remove_folder(folder)
    assert not folder.exists()


def test_a_sandbox_that_does_not_start_is_no_output_of_a_command(box: Sandbox, root: Path) -> None:
    with pytest.raises(SandboxError, match="did not start"):
        box.run("echo hi", root / "absent")


def test_without_isolation_nothing_runs_and_the_message_tells_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    try_bubblewrap.cache_clear()
    try:
        refused = detect(environ={})
        opted_out = detect(environ={"SWITCHBACK_UNSANDBOXED": "1"})
    finally:
        try_bubblewrap.cache_clear()
    assert not refused.available
    with pytest.raises(SandboxUnavailableError) as caught:
        Sandbox(refused)
    for word in ("bwrap", "apt-get install bubblewrap", "dnf", "SWITCHBACK_UNSANDBOXED=1"):
        assert word in str(caught.value)
    assert (opted_out.available, opted_out.mode) == (True, "unsandboxed")
    assert "WITHOUT isolation" in opted_out.reason


def test_the_opt_out_is_ignored_where_isolation_works() -> None:
    assert detect(environ={"SWITCHBACK_UNSANDBOXED": "1"}).mode == "bubblewrap"


def test_opted_out_commands_keep_their_limits(folder: Path) -> None:
    isolation = Isolation(True, "asked for", mode="unsandboxed", drops_root=ISOLATION.drops_root)
    box = Sandbox(isolation)
    result = box.run("cat notes.txt; pwd", folder)
    assert result.output.decode() == f"red ice\nblue sea\n{folder}\n"
    assert box.run("sleep 60 & exit 3", folder).exit_status == 3
    impatient = Sandbox(isolation, Limits(wall_s=0.5))
    assert impatient.run("sleep 60", folder).warning == "time limit of 0.5 s"
    assert box.run("yes", folder).is_truncated


def test_leftovers_of_killed_processes_are_swept(root: Path) -> None:
    pid = 4_194_304  # one above the largest number that Linux gives
    left = root.parent / f"switchback-terminal-{pid}-0"
    left.mkdir()
    other = private_root(root.parent)
    assert not left.exists()
    assert root.exists()
    remove_folder(other)
