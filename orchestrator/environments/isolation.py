"""How far a version's code and its agents' commands are kept apart from this machine.

A run stores the answer when it starts, so that its page can say later under which conditions its
numbers came about. Weak means that agents or foreign code could reach what they should not: no
sandbox at all, which the operator must have asked for, or the host's whole network, which the
version's author has. A server that somebody else runs is neither: it is not ours to limit.
"""

from __future__ import annotations

from typing import Any

from orchestrator.environments.models import EnvironmentKind, EnvironmentVersion
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.detection import detect
from orchestrator.environments.sandbox.limits import Isolation, Limits
from orchestrator.environments.tools.tasks import only_passes_on

_ELSEWHERE = {
    EnvironmentKind.URL: ("remote", "Somebody else runs the server: it is not ours to limit."),
    EnvironmentKind.DOCKER: ("docker", "A container with limits, on this machine's kernel."),
    EnvironmentKind.ACA: (
        "aca",
        "An Azure Container Apps sandbox; egress denied unless allowed.",
    ),
}
_WITHOUT_CODE = {
    EnvironmentKind.QA: ("answers", "No code of an agent runs: its answers are compared."),
    EnvironmentKind.SQL: (
        "statements",
        "Statements run in a process without rights that opens the episode's database alone.",
    ),
}
_OPEN = "The version asks for an open network: its code can reach what this machine can."


def isolation_of(version: EnvironmentVersion) -> dict[str, Any]:
    """`mode`, `is_weak`, `reason` (a sentence for people) and `limits`, ready to be stored.

    `mode`: bubblewrap, docker, aca, remote or unsandboxed; answers or statements where agents run
    no code. Tries the sandbox once in the life of the process (about 20 ms).
    """
    kind = EnvironmentKind(version.environment.kind)
    if kind in _WITHOUT_CODE:
        mode, reason = _WITHOUT_CODE[kind]
        return {"mode": mode, "is_weak": False, "reason": reason, "limits": {}}
    if kind == EnvironmentKind.TOOLS and only_passes_on(version.source):
        reason = "Calls go to a server of tools that somebody else runs: it is not ours to limit."
        return {"mode": "remote", "is_weak": False, "reason": reason, "limits": {}}
    resources = Resources.from_json(version.resources)
    if kind in _ELSEWHERE:
        mode, reason = _ELSEWHERE[kind]
        is_open = kind != EnvironmentKind.URL and resources.network.mode == "open"
        return {
            "mode": mode,
            "is_weak": is_open,
            "reason": _OPEN if is_open else reason,
            "limits": {} if kind == EnvironmentKind.URL else _of_servers(resources),
        }
    isolation = detect()
    is_isolated = isolation.mode == "bubblewrap"
    is_open = resources.network.mode == "open"
    reason = isolation.reason[:1].upper() + isolation.reason[1:]
    if is_isolated:
        missing = missing_parts(isolation)
        reason = _OPEN if is_open else "A sandbox of its own, without what it does not need."
        if missing:
            reason += f" This machine does not give: {'; '.join(missing)}."
    limits = _of_servers(resources)
    if kind == EnvironmentKind.TERMINAL:
        limits["command"] = _of_commands(Limits())
    return {
        "mode": "bubblewrap" if is_isolated else "unsandboxed",
        "is_weak": is_open or not is_isolated,
        "reason": reason,
        "limits": {**limits, "control_groups": sorted(cgroup.usable())},
    }


def missing_parts(isolation: Isolation) -> list[str]:
    """What would be stricter on another machine, in words."""
    groups = cgroup.usable()
    return [
        text
        for text, is_missing in (
            ("control groups for memory", "memory" not in groups),
            ("control groups for processes", "pids" not in groups),
            ("a filter of system calls", not isolation.has_filter),
            ("a ban on nested user namespaces", not isolation.options),
        )
        if is_missing
    ]


def _of_servers(resources: Resources) -> dict[str, Any]:
    return {
        "memory_mb": resources.memory_mb,
        "cpus": resources.cpus,
        "processes": resources.processes,
        "disk_mb": resources.disk_mb,
        "network": resources.network.mode,
        "allowed_hosts": list(resources.network.allowed_hosts),
    }


def _of_commands(limits: Limits) -> dict[str, Any]:
    return {
        "wall_s": limits.wall_s,
        "cpu_s": limits.cpu_s,
        "memory_mb": limits.tree_memory_bytes // 2**20,
        "processes": limits.processes,
        "folder_mb": limits.folder_bytes // 2**20,
    }
