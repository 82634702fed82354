"""The process of the terminal kind: `python -m orchestrator.environments.terminal.server`.

Listens on a UNIX socket or on a loopback port, never wider. Starts in about a second and a half,
nearly all of it imports; openenv's are made here, once the arguments are known to be good, so that
`--help` and refusals are quick.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from orchestrator.environments.errors import SandboxUnavailableError
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import (
    OPT_OUT_VARIABLE,
    Limits,
    Sandbox,
    detect,
    private_root,
    remove_folder,
)
from orchestrator.environments.sandbox.policy import Policy
from orchestrator.environments.sandbox.proxy import EgressProxy
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.environments.terminal.tasks import load_jsonl

CAPACITY = 64
"""Episodes at a time. Idle ones cost a thread and a folder; commands share the processors."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Exit code 2: no isolation here; the message tells what to do."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.environments.terminal.server",
        description="Serve terminal tasks as an OpenEnv environment (WebSocket sessions at /ws).",
        epilog="reset: {task: KEY}. step: {command: TEXT} or {answer: TEXT}. "
        f"Without bubblewrap the server refuses to start unless {OPT_OUT_VARIABLE}=1 is set.",
    )
    parser.add_argument("--tasks", type=Path, required=True, help="JSON lines, see terminal.tasks")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds", type=Path, help="path of the UNIX socket to listen on")
    where.add_argument("--port", type=int, help="port on 127.0.0.1")
    parser.add_argument("--capacity", type=int, default=CAPACITY, help="episodes at a time")
    parser.add_argument("--work", type=Path, help="parent of the episodes' folders")
    parser.add_argument("--network", default="{}", help="JSON: mode, allowed_hosts; default: none")
    parser.add_argument("--decisions", type=Path, help="file for the egress proxy's decisions")
    args = parser.parse_args(argv)
    try:
        network = Resources.from_json({"network": json.loads(args.network)}).network
        is_listed = network.mode == "allow-list"
        sandbox = Sandbox(
            detect(),
            Limits(),
            egress=EgressProxy(Policy(network.allowed_hosts), args.decisions)
            if is_listed
            else None,
            shares_network=network.mode == "open",
        )
    except ValueError as exc:
        parser.error(f"--network: {exc}")
    except SandboxUnavailableError as exc:
        print(f"terminal environment: {exc}", file=sys.stderr)
        return 2
    if sandbox.isolation.mode == "unsandboxed":
        print(f"terminal environment: {sandbox.isolation.reason}", file=sys.stderr)
    try:
        tasks = load_jsonl(args.tasks)
    except (OSError, ValueError) as exc:
        print(f"terminal environment: {exc}", file=sys.stderr)
        return 2
    root = private_root(args.work)
    try:
        _serve(args, tasks, sandbox, root)
    finally:
        remove_folder(root)
    return 0


def _serve(args: argparse.Namespace, tasks: list[TaskSpec], sandbox: Sandbox, root: Path) -> None:
    # openenv imports gradio for a page that is not served here: two thirds of the start, half of
    # the memory. The variable would ask for that page.
    sys.modules["gradio"] = None  # type: ignore[assignment]
    os.environ.pop("ENABLE_WEB_INTERFACE", None)
    import uvicorn

    from orchestrator.environments.terminal.environment import build_app

    # uvicorn raises the signal again after its shutdown; this turns it into an orderly exit.
    signal.signal(signal.SIGTERM, _leave)
    uvicorn.run(
        build_app(tasks, sandbox=sandbox, root=root, capacity=args.capacity),
        host="127.0.0.1",
        port=args.port or 0,
        uds=str(args.uds) if args.uds else None,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
