"""A server in the sandbox: `python -m orchestrator.environments.sandbox.service`.

The launcher stays outside. It makes the listening UNIX socket, which the server inherits (a
listening TCP socket would be a way out: `connect(AF_UNSPEC)` turns it into a client on the host's
network), starts bubblewrap in control groups, runs the egress proxy where names are allowed, copies
what the server prints up to a limit, and ends with the server's exit status. The whole tree ends
with the launcher, however that ends.

Inside: the read-only system, what `readable` names, one private folder in memory at `/tmp` with the
home folder in it (its files count as memory), no variable but those that are given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.environments.resources import Resources

HOME = "/tmp/home"
BACKLOG = 1024
LOG_LIMIT_BYTES = 16 * 2**20
END_MARK = "[sandbox] the server ended "
"""How the log's line on a server's end begins; status and limits follow."""


@dataclass(frozen=True)
class ServiceSpec:
    """What to run and what it may see and use."""

    command: tuple[str, ...]
    """`{fd}` becomes the number of the inherited, listening UNIX socket."""
    readable: tuple[tuple[str, str], ...] = ()
    """Path on the host and path inside; read-only. A later one may lie in an earlier one."""
    writable: tuple[tuple[str, str], ...] = ()
    """The same for what the server may change, and what is kept of it. No limit on its size; the
    sandbox's user must own it and reach it (`folders.private_root`).
    """
    folder: str = HOME
    """Working directory inside."""
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)

    def as_json(self) -> dict[str, Any]:
        return {
            "command": list(self.command),
            "readable": [list(pair) for pair in self.readable],
            "writable": [list(pair) for pair in self.writable],
            "folder": self.folder,
            "env": dict(self.env),
            "resources": self.resources.as_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ServiceSpec:
        return cls(
            command=tuple(value["command"]),
            readable=tuple((source, inside) for source, inside in value["readable"]),
            writable=tuple((source, inside) for source, inside in value.get("writable", ())),
            folder=value["folder"],
            env=dict(value["env"]),
            resources=Resources.from_json(value["resources"]),
        )


def service_command(spec: ServiceSpec, *, spec_path: Path, decisions: Path) -> tuple[str, ...]:
    """The command for a `LocalSpec`. Writes the specification, which may hold secrets in `env`, to
    `spec_path`, for its owner alone.

    The egress proxy's decisions are appended to `decisions`.
    """
    spec_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = spec_path.with_name(f".{spec_path.name}.{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(spec.as_json(), file, sort_keys=True)
    partial.replace(spec_path)
    return (
        *(sys.executable, "-m", "orchestrator.environments.sandbox.service"),
        *("--socket", "{socket}", "--spec", str(spec_path.resolve())),
        *("--decisions", str(decisions.resolve())),
    )


def main() -> int:
    """Run the server until it ends, or until SIGTERM. Exit code 2: no isolation here."""
    # Deferred: whoever only describes a service need not load what runs one.
    from orchestrator.environments.sandbox.launcher import launch

    parser = argparse.ArgumentParser(prog="python -m orchestrator.environments.sandbox.service")
    parser.add_argument("--socket", type=Path, required=True, help="UNIX socket to listen on")
    parser.add_argument("--spec", type=Path, required=True, help="file of `service_command`")
    parser.add_argument("--decisions", type=Path, help="file for the egress proxy's decisions")
    args = parser.parse_args()
    spec = ServiceSpec.from_json(json.loads(args.spec.read_text(encoding="utf-8")))
    return launch(spec, socket_path=args.socket, decisions=args.decisions)


if __name__ == "__main__":
    sys.exit(main())
