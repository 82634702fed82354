"""Running an agent's commands, and foreign servers, apart from everything else on the machine.

With bubblewrap a command sees a read-only system, an empty `/tmp`, its task's folder at `/task`,
and nothing more: no network, no host files, no environment variables, no other process, user
nobody without capabilities. Limits on processor time, memory, processes and file size are set
inside the user namespace, so that they count per command and not over all episodes; control groups,
where this process may make them, limit the whole tree. The wall clock, the kill of the whole tree
and the cap on output are done here.

When started as root, the command runs as uid 65534 on the host as well (`setpriv`), so that an
escape would meet an ordinary user's rights; only where the kernel gives user namespaces to root
alone does it stay root's on the host. Started by another user, files in the task's folder belong to
that user.

`command` runs one command, `service` a server that listens on a UNIX socket; `detection` finds out
by trying what this machine can give.

A failure of the sandbox itself is an error (`SandboxError`), never the output of a command:
bubblewrap reports on a descriptor of its own whether the command was started.
"""

from __future__ import annotations

from orchestrator.environments.sandbox.command import Sandbox
from orchestrator.environments.sandbox.detection import detect
from orchestrator.environments.sandbox.folders import (
    folder_size_bytes,
    fresh_folder,
    private_root,
    remove_folder,
)
from orchestrator.environments.sandbox.limits import (
    NOBODY,
    OPT_OUT_VARIABLE,
    TASK_FOLDER,
    CommandResult,
    Isolation,
    Limits,
)

__all__ = [
    "NOBODY",
    "OPT_OUT_VARIABLE",
    "TASK_FOLDER",
    "CommandResult",
    "Isolation",
    "Limits",
    "Sandbox",
    "detect",
    "folder_size_bytes",
    "fresh_folder",
    "private_root",
    "remove_folder",
]
