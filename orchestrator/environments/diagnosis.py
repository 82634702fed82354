"""What isolation this machine can give, finding by finding, each with its fix.

Every finding is the result of a real try, not of a look at versions. `fail` means that something
which is needed is missing: agents' commands or foreign servers would not run. `warn` means that
they run with less than this product can do; `note` says what is optional and absent.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.command import Sandbox
from orchestrator.environments.sandbox.detection import detect
from orchestrator.environments.sandbox.folders import fresh_folder, private_root, remove_folder
from orchestrator.environments.sandbox.limits import OPT_OUT_VARIABLE, Isolation, Limits
from orchestrator.environments.sandbox.policy import Policy
from orchestrator.environments.sandbox.proxy import EgressProxy

Level = Literal["ok", "note", "warn", "fail"]

DISK_NEEDED_MB, DISK_WANTED_MB = 256, 2048
DOCKER_TIMEOUT_S = 5.0
_TIME_ERROR = 5  # <sys/timex.h>: the clock is not synchronised
_TIMEX_BYTES = 208


@dataclass(frozen=True)
class Finding:
    name: str
    level: Level
    text: str
    fix: str = ""
    """What to do about it; commands stand between backticks."""


def findings(data: Path, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """All of them, in the order of importance. Takes about half a second.

    `data`: the product's data folder.
    """
    environ = os.environ if environ is None else environ
    isolation = detect({})
    return [
        _bubblewrap(environ),
        *_isolation(isolation, environ),
        *_details(isolation),
        _control_groups(),
        _egress(isolation),
        _docker(),
        _disk("disk: data folder", data),
        _disk("disk: temporary folder", Path(tempfile.gettempdir())),
        _clock(),
    ]


def _bubblewrap(environ: Mapping[str, str]) -> Finding:
    path = shutil.which("bwrap")
    if path is None:
        fix = "apt-get install bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"
        level: Level = "warn" if environ.get(OPT_OUT_VARIABLE) == "1" else "fail"
        return Finding("bubblewrap", level, "not installed", fix)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return Finding("bubblewrap", "ok", f"{said.stdout.strip() or 'version unknown'} at {path}")


def _isolation(isolation: Isolation, environ: Mapping[str, str]) -> Iterator[Finding]:
    opted_out = environ.get(OPT_OUT_VARIABLE) == "1"
    if isolation.available:
        yield Finding("sandbox", "ok", "a command runs in namespaces of its own as user nobody")
        if opted_out:
            text = f"{OPT_OUT_VARIABLE}=1 is set and has no effect: isolation works here"
            yield Finding("opt-out", "note", text, f"unset {OPT_OUT_VARIABLE}")
        return
    hint = isolation.hint.partition(", or set")[0]
    if opted_out:
        text = f"{isolation.reason}; {OPT_OUT_VARIABLE}=1 lets agents' commands run all the same"
        yield Finding("sandbox", "warn", f"WITHOUT ISOLATION: {text}", hint)
    else:
        yield Finding("sandbox", "fail", isolation.reason, f"{hint}{_kernel_hint()}")


def _kernel_hint() -> str:
    """What this kernel says about user namespaces, where it says no."""
    refusals = {
        "user/max_user_namespaces": "0",
        "kernel/unprivileged_userns_clone": "0",
        "kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    found = [
        f"{name.replace('/', '.')}={value}"
        for name, value in refusals.items()
        if _read(Path("/proc/sys", name)) == value
    ]
    return f" Found here: {', '.join(found)}." if found else ""


def _details(isolation: Isolation) -> Iterator[Finding]:
    if not isolation.available:
        return
    if os.geteuid() == 0:
        if isolation.drops_root:
            text = "started as root; commands are user nobody on the host too"
            yield Finding("user on the host", "ok", text)
        else:
            text = "started as root, and commands stay root on the host, without capabilities"
            fix = "allow user namespaces to other users than root, or run the worker as another"
            yield Finding("user on the host", "warn", text, fix)
    if isolation.options:
        yield Finding("nested namespaces", "ok", "refused inside")
    else:
        fix = "bubblewrap 0.8 or newer"
        yield Finding("nested namespaces", "warn", "not refused by bubblewrap inside", fix)
    if isolation.has_filter:
        yield Finding("system calls", "ok", "filtered (seccomp)")
    else:
        text = f"not filtered on this kernel or processor ({platform.machine()})"
        fix = "a kernel with CONFIG_SECCOMP_FILTER on x86-64 or 64-bit ARM"
        yield Finding("system calls", "warn", text, fix)
    if not isolation.has_proc:
        fix = "a container with systempaths=unconfined, or none"
        yield Finding("/proc", "note", "cannot be mounted inside: some programs miss it", fix)


def _control_groups() -> Finding:
    usable = cgroup.usable()
    missing = [name for name in cgroup.CONTROLLERS if name not in usable]
    if not missing:
        return Finding("control groups", "ok", f"limit {', '.join(cgroup.CONTROLLERS)} of a tree")
    text = f"not permitted for {', '.join(missing)}: limits hold for each process, not for a tree"
    fix = (
        "run the worker by systemd with Delegate=yes (systemd-run --user --scope -p Delegate=yes), "
        "or in a container with a writable /sys/fs/cgroup"
    )
    return Finding("control groups", "warn", text, fix)


def _egress(isolation: Isolation) -> Finding:
    """Whether a sandbox can be given an allow-list: a request through the proxy is denied."""
    if not isolation.available:
        return Finding("egress proxy", "note", "not tried: there is no sandbox")
    ask = (
        "exec 3<>/dev/tcp/127.0.0.1/3128 && "
        "printf 'CONNECT doctor.invalid:443 HTTP/1.1\\r\\n\\r\\n' >&3 && head -n 1 <&3"
    )
    root = private_root()
    try:
        with EgressProxy(Policy(("allowed.invalid",))) as proxy:
            box = Sandbox(isolation, replace(Limits(), wall_s=5.0), egress=proxy)
            result = box.run(ask, fresh_folder(root, {}, isolation))
    except SandboxError as exc:
        return Finding("egress proxy", "warn", str(exc), _EGRESS_FIX)
    finally:
        remove_folder(root)
    if b" 403 " in result.output:
        return Finding("egress proxy", "ok", "reached from inside; a name off the list is denied")
    said = result.output.decode(errors="replace").strip() or result.warning or "nothing"
    return Finding("egress proxy", "warn", f"not reached from inside: {said}", _EGRESS_FIX)


_EGRESS_FIX = (
    "allow the worker to enter the network namespaces of its own children (setns), "
    "or use no environments with network.mode allow-list"
)


def _docker() -> Finding:
    if shutil.which("docker") is None:
        text = "not installed: environments of kind container image cannot run here"
        return Finding("docker", "note", text, "install Docker Engine if you need them")
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    fix = "start the Docker daemon, and let the worker's user use its socket, if you need it"
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=DOCKER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("docker", "note", f"no answer within {DOCKER_TIMEOUT_S:g} s", fix)
    if said.returncode != 0:
        lines = said.stderr.strip().splitlines()
        return Finding("docker", "note", lines[-1] if lines else "no answer", fix)
    return Finding("docker", "ok", f"server {said.stdout.strip()}")


def _disk(name: str, folder: Path) -> Finding:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    try:
        free_mb = shutil.disk_usage(place).free // 2**20
        is_writable = os.access(place, os.W_OK)
    except OSError as exc:
        return Finding(name, "fail", f"{place}: {exc.strerror}", "mount or repair it")
    text = f"{free_mb / 1024:.1f} GiB free at {place}"
    if not is_writable:
        return Finding(name, "fail", f"{place} cannot be written", "give it to the worker's user")
    if free_mb < DISK_NEEDED_MB:
        return Finding(name, "fail", text, f"free at least {DISK_NEEDED_MB} MiB")
    if free_mb < DISK_WANTED_MB:
        return Finding(name, "warn", text, f"{DISK_WANTED_MB / 1024:g} GiB are comfortable")
    return Finding(name, "ok", text)


def _clock(now: Callable[[], float] = time.time) -> Finding:
    """Wrong clocks spoil certificates, leases between machines and the order of what people read.

    A clock before this file was written is wrong for certain.
    """
    fix = "start a time service: systemd-timesyncd, chrony or ntpd"
    if now() < Path(__file__).stat().st_mtime - 86400:
        return Finding("clock", "fail", f"it says {time.ctime(now())}, before this software", fix)
    state = _clock_state()
    if state is None:
        return Finding("clock", "note", "whether it is synchronised cannot be told here")
    if state == _TIME_ERROR:
        return Finding("clock", "warn", "not synchronised", fix)
    return Finding("clock", "ok", "synchronised")


def _clock_state() -> int | None:
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = int(adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    return state if state >= 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
