"""Attempts to get out of the sandbox. All fail, each for its reason, and the host stays healthy.

Commands of agents are tried from a shell, servers from Python (`escapes`), which knows more tricks.
Both see the same namespaces, limits and filter.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.sandbox import (
    Limits,
    Sandbox,
    detect,
    fresh_folder,
    private_root,
    remove_folder,
)
from orchestrator.environments.sandbox.service import ServiceSpec, service_command
from orchestrator.environments.servers.local import LocalSpec
from orchestrator.environments.terminal.observation import segments_of, text_of
from tests.environments import escapes
from tests.environments.conftest import needs_bubblewrap
from tests.waiting import wait_until

ISOLATION = detect(environ={})
SECRET = "the-secret-of-the-host-5e1f"
pytestmark = needs_bubblewrap


@dataclass(frozen=True)
class Host:
    """What there would be to get."""

    folder: Path
    port: int
    port6: int
    unix: Path
    abstract: str

    @property
    def secret_path(self) -> Path:
        return self.folder / "secret.txt"

    @property
    def database(self) -> Path:
        return self.folder / "db.sqlite3"

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.jsonl"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Sockets that listen, and files that anybody on the machine may read."""
    folder = tmp_path_factory.mktemp("host")
    os.environ["SWITCHBACK_TEST_SECRET"] = SECRET
    abstract = f"switchback-test-{os.getpid()}"
    with ExitStack() as stack:
        four = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(folder / "s.sock"))
        unix.listen()
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(f"\0{abstract}")
        named.listen()
        try:
            six = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
            port6 = six.getsockname()[1]
        except OSError:  # a machine without IPv6
            port6 = four.getsockname()[1]
        made = Host(folder, four.getsockname()[1], port6, folder / "s.sock", abstract)
        for path in (made.secret_path, made.database, made.tasks):
            path.write_text(SECRET)
            path.chmod(0o666)
        yield made
    del os.environ["SWITCHBACK_TEST_SECRET"]


# --- commands of agents ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    root = private_root()
    yield fresh_folder(root, {"notes.txt": "red\n"}, ISOLATION)
    remove_folder(root)


@pytest.fixture(scope="module")
def box() -> Sandbox:
    return Sandbox(ISOLATION, Limits(wall_s=3))


@pytest.fixture(autouse=True)
def the_host_stays_healthy(request: pytest.FixtureRequest) -> Iterator[None]:
    if "box" not in request.fixturenames:
        yield
        return
    box, folder, host = (request.getfixturevalue(name) for name in ("box", "folder", "host"))
    yield
    assert box.run("echo alive", folder).output == b"alive\n"
    for path in (host.secret_path, host.database, host.tasks):
        assert path.read_text() == SECRET
    assert not leftovers(), "a process of the sandbox lives on"


def leftovers() -> list[str]:
    """Processes of a sandbox that this test process has started and that have not ended soon."""
    pause = threading.Event()
    for _ in range(100):
        found = [
            entry.name
            for entry in os.scandir("/proc")
            if entry.name.isdigit() and "MARK-OF-ESCAPE" in _command_of(entry.path)
        ]
        if not found:
            return []
        pause.wait(0.02)
    return found


def _command_of(process: str) -> str:
    try:
        return Path(process, "cmdline").read_text(errors="replace")
    except OSError:
        return ""


SHELL: dict[str, tuple[str, str]] = {
    "ipv4 to the host": ("exec 3<>/dev/tcp/127.0.0.1/{port}", "refused"),
    "ipv4 outside": ("exec 3<>/dev/tcp/1.1.1.1/443", "unreachable"),
    "ipv6 to the host": ("exec 3<>/dev/tcp/::1/{port6}", "refused|assign"),
    "ipv6 outside": ("exec 3<>/dev/tcp/2606:4700:4700::1111/443", "unreachable|assign"),
    "metadata service": ("exec 3<>/dev/tcp/169.254.169.254/80", "unreachable"),
    "udp to a name server": ("echo x > /dev/udp/8.8.8.8/53", "unreachable"),
    "name resolution": ("exec 3<>/dev/tcp/example.org/443", "resol|Name|name"),
    "unix socket of the host": ("ls {unix}", "No such file"),
    "replacing the socket by a link": ("ln -sf /etc/passwd {unix}", "No such file"),
    "sockets of the system": ("ls /run /var/run /run/docker.sock", "No such file"),
    "a secret by its path": ("cat {secret_path}", "No such file"),
    "a secret by searching": (
        "grep -rl {secret} / --exclude-dir=proc --exclude-dir=usr 2>/dev/null",
        "",
    ),
    "the database": ("cat {database}", "No such file"),
    "writing the tasks": ("echo x > {tasks}", "No such file"),
    "the shadow file": ("cat /etc/shadow", "No such file"),
    "keys of users": ("ls /root/.ssh /home", "No such file"),
    "the environment of any process": ("cat /proc/*/environ | tr '\\0' '\\n' | grep SECRET", ""),
    "processes of the host": ("ls /proc | grep -E '^[0-9]{{3}}'", ""),
    "the root of another process": ("ls /proc/*/root{secret_path}", "No such file"),
    "the way up": ("ls /task/../../..{secret_path}", "No such file"),
    "a symbolic link out": ("ln -sf {secret_path} out; cat out", "No such file"),
    "a hard link out": ("ln /usr/bin/env linked", "ross-device|not permitted"),
    "a hard link to the host": ("ln {secret_path} linked", "No such file"),
    "a signal to the parent": ("kill -STOP {pid}", "No such process"),
    "writing the system": ("echo x > /usr/bin/x", "Read-only|denied"),
    "writing where software is put": ("echo x > /usr/local/x", "Read-only|denied"),
    "a new folder at the top": ("mkdir /x", "Read-only|denied"),
    "shared memory": ("echo x > /dev/shm/x", "Read-only|denied|No such"),
    "mounting": ("mount -t tmpfs none /tmp", "denied|superuser|permitted|permission"),
    "mounting the host's processes": ("mount -t proc none /tmp", "denied|superuser|permi"),
    "making it writable": ("mount -o remount,rw /usr", "denied|superuser|permi|not mounted"),
    "a nested user namespace": ("unshare --user --map-root-user id", "not permitted|No space"),
    "another root": ("/usr/sbin/chroot /tmp /bin/sh", "not permitted|cannot"),
    "a device": ("mknod disk b 8 0", "not permitted"),
    "devices of the host": ("ls /dev/sda /dev/vda /dev/mem /dev/kmsg /dev/loop0", "No such file"),
    "control groups": ("ls -d /sys /sys/fs/cgroup", "No such file"),
    "the kernel's settings": ("echo x > /proc/sys/kernel/core_pattern", "denied|Read-only"),
    "the system request key": ("echo b > /proc/sysrq-trigger", "denied|Read-only|No such"),
    "the kernel's log": ("dmesg", "not permitted"),
    "addresses of the kernel": ("head -9 /proc/kallsyms | grep -v ^0000000000000000", ""),
    "the terminal": ("cat /dev/tty", "No such device"),
    "becoming root": ("su -c id", "denied|failure|cannot|must be|not|su:"),
    "a set-user-id program": ("cp /usr/bin/id i; chmod 6755 i; ./i | grep -v 65534", ""),
    "raising limits": ("ulimit -u 4000", "not permitted|cannot modify"),
    "dumping core": ("ulimit -c unlimited", "not permitted|cannot modify"),
    "escaping the memory killer": ("echo -1000 > /proc/self/oom_score_adj", "denied|permitted"),
    "the clock": ("date -s 2001-01-01 >/dev/null", "not permitted"),
    "the name of the host": ("hostname mine", "permitted|must be root"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHELL)
def test_a_command_gets_nothing(name: str, box: Sandbox, folder: Path, host: Host) -> None:
    command, refusal = SHELL[name]
    filled = command.format(
        port=host.port, port6=host.port6, unix=host.unix, secret_path=host.secret_path,
        secret=SECRET, database=host.database, tasks=host.tasks, pid=os.getpid(),
    )  # fmt: skip
    result = box.run(filled, folder)
    said = result.output.decode(errors="replace")
    if "command not found" in said:
        pytest.skip(f"this system has no such program: {said.strip()}")
    assert result.exit_status != 0, said
    assert SECRET not in said.replace(filled, "")
    if refusal:
        assert re.search(refusal, said), said
    else:
        assert said == ""


def test_a_command_inherits_nothing_but_its_pipe(box: Sandbox, folder: Path) -> None:
    said = box.run("for f in /proc/$$/fd/*; do readlink $f; done", folder).output.decode()
    assert {re.sub(r"\d+", "N", line) for line in said.split()} == {"/dev/null", "pipe:[N]"}


BOMBS = {
    "forks": ("f(){ f|f& };f; sleep 60", "limit of 24 processes"),
    "memory": (
        "for i in 1 2 3 4; do (head -c 100M /dev/zero; sleep 9) | tail > /dev/null & done; wait",
        "memory limit of 256 MiB",
    ),
    "files in its folder": (
        "for i in $(seq 1000); do head -c 4M /dev/zero > f$i; done",
        "files of more than 32 MiB",
    ),
    "many small files": ("i=0; while :; do : > $((i++)); done", "files of more than 32 MiB"),
    "one large file": ("head -c 1G /dev/zero > big", "file size limit of 8 MiB"),
    "output": ("yes MARK-OF-ESCAPE", "output"),
    "time": ("sleep 60", "time limit of 0.5 s"),
    "processor time": ("while :; do :; done", "processor time limit of 1 s"),
    "ignoring signals": ("trap '' TERM INT HUP; while :; do sleep 1; done", "time limit of 0.5 s"),
    "stopping itself": ("kill -STOP $$", "time limit of 0.5 s"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_and_the_limit_that_ended_it_is_told(name: str, host: Host) -> None:
    command, expected = BOMBS[name]
    if name in ("forks", "memory"):
        needs_control_groups()
    wall_s = {"forks": 1.0, "memory": 2.0}.get(name, 0.5 if expected.startswith("time") else 6.0)
    box = Sandbox(ISOLATION, Limits(wall_s=wall_s, cpu_s=1 if "processor" in name else 5))
    root = private_root()
    try:
        folder = fresh_folder(root, {}, ISOLATION)
        neighbour = fresh_folder(root, {}, ISOLATION)
        result = box.run(f": MARK-OF-ESCAPE; {command}", folder)
        assert expected in result.warning
        observed = text_of(
            segments_of(result.output, exit_status=result.exit_status, warning=result.warning)
        )
        assert expected in observed, "the agent and the trace are told"
        assert result.duration_s < wall_s + 20
        assert box.run("echo alive", neighbour).output == b"alive\n"
        assert not leftovers()
    finally:
        remove_folder(root)


def needs_control_groups() -> None:
    from orchestrator.environments.sandbox import cgroup

    if not {"memory", "pids"} <= set(cgroup.usable()):
        pytest.skip("no control groups here: the limits hold for each process, and are not told")


def test_a_full_tmp_is_an_error_of_the_command(box: Sandbox, folder: Path, host: Host) -> None:
    result = box.run("for i in 1 2 3; do head -c 7M /dev/zero > /tmp/$i || exit 9; done", folder)
    assert b"No space left" in result.output
    assert result.exit_status == 9


DAEMONS = [
    "(setsid bash -c ': MARK-OF-ESCAPE; sleep 0.4; touch late') >/dev/null 2>&1 &",
    "nohup bash -c ': MARK-OF-ESCAPE; sleep 0.4; touch late' >/dev/null 2>&1 & disown;",
    "( ( setsid bash -c ': MARK-OF-ESCAPE; trap \"\" HUP TERM; sleep 0.4; touch late' ) & ) >&-;",
]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_what_is_left_behind_ends_with_the_command(
    daemon: str, box: Sandbox, folder: Path, host: Host
) -> None:
    result = box.run(f"{daemon} echo done", folder)
    assert (result.output, result.exit_status) == (b"done\n", 0)
    assert not leftovers()
    threading.Event().wait(0.5)
    assert not (folder / "late").exists()


def test_killing_everything_inside_kills_nothing_outside(
    box: Sandbox, folder: Path, host: Host
) -> None:
    assert box.run("kill -9 -1; kill -9 1; echo on", folder).exit_status in (0, 137)


def test_links_in_a_folder_are_not_followed_by_the_host(host: Host) -> None:
    root = private_root()
    try:
        folder = fresh_folder(root, {}, ISOLATION)
        target = host.folder / "kept"
        target.mkdir(exist_ok=True)
        (target / "file").write_text("x" * 100_000)
        box = Sandbox(ISOLATION, Limits(folder_bytes=50_000))
        command = f"ln -s {target} a; ln -s {target}/file b; mkdir -m 300 c; sleep 0.3"
        assert box.run(command, folder).warning == ""
        remove_folder(folder)
        assert (target / "file").exists()
        assert target.stat().st_mode & 0o777 == 0o755
    finally:
        remove_folder(root)


# --- servers --------------------------------------------------------------------------------------

SERVER_LIMITS = Resources(memory_mb=192, processes=24, disk_mb=16, cpus=1.0)


def interpreter() -> tuple[tuple[str, str], ...]:
    """What Python needs inside: its program and its standard library."""
    program = os.path.realpath(sys.executable)
    paths = [program, sysconfig.get_path("stdlib")]
    library = Path(sysconfig.get_config_var("LIBDIR") or "/nowhere")
    paths += [str(path) for path in library.glob("libpython3*.so*")]
    return tuple((path, path) for path in paths)


def service(
    tmp_path: Path, *arguments: str, resources: Resources = SERVER_LIMITS
) -> tuple[str, ...]:
    """The command of Python in the sandbox; `{socket}` is to be filled in."""
    script = Path(escapes.__file__).resolve()
    spec = ServiceSpec(
        command=(os.path.realpath(sys.executable), "-I", *arguments),
        readable=(*interpreter(), (str(script), "/opt/escapes.py")),
        env={"PYTHONHOME": sys.base_prefix},
        resources=resources,
    )
    return service_command(
        spec, spec_path=tmp_path / "spec.json", decisions=tmp_path / "decisions.jsonl"
    )


def serve(
    tmp_path: Path, *arguments: str, resources: Resources = SERVER_LIMITS
) -> subprocess.CompletedProcess[str]:
    """Run Python as a server in the sandbox until it ends; what was logged is the output."""
    command = service(tmp_path, *arguments, resources=resources)
    return subprocess.run(
        [part.replace("{socket}", str(tmp_path / "s.sock")) for part in command],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def found(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the attempts inside a server came to: one server for all of them."""
    told = {
        "port": host.port, "port6": host.port6, "unix": str(host.unix), "pid": os.getpid(),
        "abstract": host.abstract, "secret": SECRET, "secret_path": str(host.secret_path),
        "database": str(host.database), "tasks": str(host.tasks),
    }  # fmt: skip
    code = (
        "import runpy, sys, json\n"
        "told = json.loads(sys.argv[1]); told['listener'] = int(sys.argv[2])\n"
        "sys.argv = ['x', json.dumps(told)]\n"
        "runpy.run_path('/opt/escapes.py', run_name='__main__')"
    )
    done = serve(tmp_path_factory.mktemp("service"), "-c", code, json.dumps(told), "{fd}")
    match = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert match, done.stdout
    results: dict[str, Any] = json.loads(match[1])
    return results


@pytest.mark.parametrize("name", escapes.ATTEMPTS)
def test_a_server_gets_nothing(name: str, found: dict[str, Any], host: Host) -> None:
    assert found[name]["escaped"] is False, found[name]["why"]
    assert found[name]["why"], "there is a reason"
    assert host.tasks.read_text() == SECRET


def test_there_are_enough_attempts() -> None:
    assert len(SHELL) + len(BOMBS) >= 25
    assert len(escapes.ATTEMPTS) >= 25


SERVER_BOMBS = {
    "memory": ("x = [bytearray(2**20) for _ in range(4000)]", "memory limit of 192 MiB"),
    "forks": (
        "import os\nwhile True:\n try:\n  os.fork()\n except OSError:\n  break\nos._exit(3)",
        "limit of 24 processes",
    ),
}


@pytest.mark.parametrize("name", SERVER_BOMBS)
def test_a_server_that_bursts_is_ended_and_its_log_says_why(name: str, tmp_path: Path) -> None:
    needs_control_groups()
    code, expected = SERVER_BOMBS[name]
    done = serve(tmp_path, "-c", code)
    assert done.returncode != 0
    assert f"[sandbox] the server ended with status {done.returncode}: {expected}" in done.stdout


def test_a_server_of_a_pool_says_what_ended_it(tmp_path: Path) -> None:
    needs_control_groups()
    code = "print('x', end=''); y = [bytearray(2**20) for _ in range(4000)]"
    spec = LocalSpec(name="v1", command=service(tmp_path, "-c", code), capacity=1)
    server = spec.make(tmp_path / "server")
    server.start_container()
    try:
        wait_until(lambda: not server.is_alive, limit_s=20, what="the server's end")
        limit = "memory limit of 192 MiB"
        assert server.last_words() == f"The server ended with status 137: {limit}."
    finally:
        server.close()
    assert server.last_words() == ""


def test_a_server_that_fills_its_disk_gets_an_error(tmp_path: Path) -> None:
    code = "open('/tmp/x', 'wb').write(bytes(30 * 2**20))"
    done = serve(tmp_path, "-c", code)
    assert re.search("No space left|File too large", done.stdout)


def test_what_a_server_prints_without_end_is_cut(tmp_path: Path) -> None:
    done = serve(tmp_path, "-c", "for _ in range(20): print('x' * 2**20)")
    assert 16 * 2**20 <= len(done.stdout) < 17 * 2**20
    assert "the log is cut after 16 MiB" in done.stdout


def test_a_servers_children_end_with_it(tmp_path: Path) -> None:
    code = (
        "import os, time\nif os.fork() == 0:\n os.setsid()\n"
        " os.execv('/bin/sleep', ['sleep', '30', '0.0MARK-OF-ESCAPE'])\n"
        "os.execv('/bin/sh', ['sh', '-c', ': MARK-OF-ESCAPE; exit 5'])"
    )
    assert serve(tmp_path, "-c", code).returncode == 5
    assert not leftovers()


@pytest.mark.parametrize("number", [15, 9])
def test_a_server_ends_with_its_launcher(tmp_path: Path, number: int) -> None:
    spec = ServiceSpec(
        command=(
            "/bin/sh",
            "-c",
            "trap '' TERM; echo up; while :; do sleep 0.1; : MARK-OF-ESCAPE; done",
        ),
        resources=SERVER_LIMITS,
    )
    command = service_command(
        spec, spec_path=tmp_path / "spec.json", decisions=tmp_path / "decisions.jsonl"
    )
    filled = [part.replace("{socket}", str(tmp_path / "s.sock")) for part in command]
    launcher = subprocess.Popen(
        filled, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, start_new_session=True
    )
    with launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"up\n"
        os.kill(launcher.pid, number)
        launcher.wait(10)
    assert not leftovers()


def test_a_server_reaches_allowed_names_through_the_proxy_only(tmp_path: Path) -> None:
    code = (
        "import os, socket\n"
        "proxy = socket.create_connection(('127.0.0.1', 3128), 5)\n"
        "proxy.sendall(b'CONNECT other.net:443 HTTP/1.1\\r\\n\\r\\n')\n"
        "print(os.environ['HTTPS_PROXY'], proxy.recv(100).split(b'\\r\\n')[0])\n"
        "try:\n socket.create_connection(('1.1.1.1', 443), 5)\nexcept OSError as e:\n print(e)"
    )
    network = Network("allow-list", ("api.example.org",))
    done = serve(tmp_path, "-c", code, resources=replace(SERVER_LIMITS, network=network))
    assert "http://127.0.0.1:3128 b'HTTP/1.1 403 Forbidden'" in done.stdout
    assert "unreachable" in done.stdout
    (line,) = (tmp_path / "decisions.jsonl").read_text().splitlines()
    assert json.loads(line)["host"] == "other.net"


def test_the_socket_is_for_this_user_alone_and_inherited(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys; s = socket.socket(fileno=int(sys.argv[1])); print(s.family.name)"
    )
    done = serve(tmp_path, "-c", code, "{fd}")
    assert "AF_UNIX" in done.stdout
    assert (tmp_path / "s.sock").stat().st_mode & 0o077 == 0


# --- without isolation, as an operator may ask ----------------------------------------------------


def test_without_isolation_a_server_keeps_its_limits_and_the_log_says_so(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "setpriv", "prlimit"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    code = tmp_path / "code"
    code.mkdir()
    (code / "hello.txt").write_text("hello\n")
    opened = Path("/tmp") / f"switchback-test-{os.getpid()}"
    shutil.copytree(code, opened)
    try:
        spec = ServiceSpec(
            command=("/bin/sh", "-c", "pwd; cat /opt/app/hello.txt; ulimit -c; echo $HOME; exit 4"),
            readable=((str(opened), "/opt/app"),),
            folder="/opt/app",
            resources=SERVER_LIMITS,
        )
        command = service_command(
            spec, spec_path=tmp_path / "spec.json", decisions=tmp_path / "decisions.jsonl"
        )
        done = subprocess.run(
            [part.replace("{socket}", str(tmp_path / "s.sock")) for part in command],
            cwd=Path(__file__).parents[2],
            env={"PATH": str(tools), "SWITCHBACK_UNSANDBOXED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        shutil.rmtree(opened)
    assert done.returncode == 4, done.stdout
    assert "WITHOUT isolation" in done.stdout
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[sandbox]")]
    assert lines[:3] == [str(opened), "hello", "0"]
    assert lines[3].startswith(tempfile.gettempdir())


def test_where_nothing_isolates_and_nobody_asked_a_server_does_not_start(tmp_path: Path) -> None:
    spec = ServiceSpec(command=("/bin/true",), resources=SERVER_LIMITS)
    command = service_command(
        spec, spec_path=tmp_path / "spec.json", decisions=tmp_path / "decisions.jsonl"
    )
    done = subprocess.run(
        [part.replace("{socket}", str(tmp_path / "s.sock")) for part in command],
        cwd=Path(__file__).parents[2],
        env={"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "apt-get install bubblewrap" in done.stdout
