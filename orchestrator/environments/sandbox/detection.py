"""What isolation this machine gives, found out by trying.

User namespaces can be off in containers or by sysctl even where the binary is installed; so a real
command is run, with the strictest options first. Without isolation nothing runs, unless the
operator has opted out by `SWITCHBACK_UNSANDBOXED=1`; then only the limits apply and the result says
so (`Isolation.mode`).
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
from collections.abc import Iterator, Mapping

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sandbox.command import Sandbox
from orchestrator.environments.sandbox.folders import fresh_folder, private_root, remove_folder
from orchestrator.environments.sandbox.limits import OPT_OUT_VARIABLE, Isolation
from orchestrator.environments.sandbox.seccomp import program

_INSTALL_HINT = (
    "Install bubblewrap (Debian, Ubuntu: `apt-get install bubblewrap`; Fedora: "
    "`dnf install bubblewrap`) and allow user namespaces (sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container, its security options)"
)
_OPT_OUT_HINT = (
    f"or set {OPT_OUT_VARIABLE}=1 to run commands of agents without isolation, knowing that they "
    "then can read your files and use your network"
)


def detect(environ: Mapping[str, str] | None = None) -> Isolation:
    """What isolation works here, by a real try (about 20 ms, remembered for the process).

    The opt-out counts only where isolation does not work.
    """
    isolation = try_bubblewrap()
    environ = os.environ if environ is None else environ
    if isolation.available or environ.get(OPT_OUT_VARIABLE) != "1":
        return isolation
    return Isolation(
        available=True,
        reason=f"commands run WITHOUT isolation, as {OPT_OUT_VARIABLE}=1 asks: {isolation.reason}",
        hint=_INSTALL_HINT,
        mode="unsandboxed",
        drops_root=os.geteuid() == 0 and shutil.which("setpriv") is not None,
    )


@functools.cache
def try_bubblewrap() -> Isolation:
    if platform.system() != "Linux":
        return _refused(f"agents' commands need Linux, this is {platform.system()}")
    is_root = os.geteuid() == 0
    wanted = ["bwrap", "prlimit", "bash"] + (["setpriv"] if is_root else [])
    missing = [name for name in wanted if shutil.which(name) is None]
    if missing:
        return _refused(f"{' and '.join(missing)} not found on the PATH")
    said = ""
    for isolation in _variants(is_root):
        root = private_root()
        try:
            folder = fresh_folder(root, {"probe.txt": "probe\n"}, isolation)
            probe = 'test "$(id -u)" = 65534 && echo more >> probe.txt && cat probe.txt'
            result = Sandbox(isolation).run(probe, folder)
        except (SandboxError, OSError) as exc:
            said = said or str(exc)
            continue
        finally:
            remove_folder(root)
        if result.output == b"probe\nmore\n":
            return isolation
        said = said or result.output.decode(errors="replace").strip()
    return _refused(f"bubblewrap is installed and does not work here ({said})")


_CHOICES = (
    (("--disable-userns",), True, True),
    (("--disable-userns",), True, False),
    ((), True, True),
    ((), True, False),
    ((), False, True),
    ((), False, False),
)
"""Further options, whether there is `/proc`, whether system calls are filtered."""


def _variants(is_root: bool) -> Iterator[Isolation]:
    """Strictest first. Bubblewrap before 0.8 has no --disable-userns, containers may forbid /proc,
    kernels may refuse user namespaces to all but root.
    """
    for drops_root in (True, False) if is_root else (False,):
        for options, has_proc, has_filter in _CHOICES:
            if has_filter and program() is None:
                continue
            yield Isolation(
                available=True,
                reason="bubblewrap works",
                mode="bubblewrap",
                options=options,
                has_proc=has_proc,
                has_filter=has_filter,
                drops_root=drops_root,
            )


def _refused(reason: str) -> Isolation:
    return Isolation(available=False, reason=reason, hint=f"{_INSTALL_HINT}, {_OPT_OUT_HINT}")
