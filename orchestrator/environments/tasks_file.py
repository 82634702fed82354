"""What the built-in kinds' servers share: the file of tasks, the command line, the process.

A kind writes its tasks, answers included, to a file that only this user can read and whose name
carries their hash, so that equal specifications share a server. The server reads it and listens on
a UNIX socket or a loopback port, never wider. openenv's imports, nearly all of a start, are made
once the arguments are known to be good, so that `--help` and refusals are quick.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def write_tasks(specs: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """One task a line; appears whole or not at all, readable for its owner alone.

    Written once for the same tasks.
    """
    content = "".join(json.dumps(spec, ensure_ascii=False, sort_keys=True) + "\n" for spec in specs)
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = folder / f"tasks-{digest}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(content)
        partial.replace(path)
    return path.resolve()


def read_tasks(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    """Inverse of `write_tasks`. `ValueError` names the line that does not fit."""
    tasks = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                tasks.append(parse(json.loads(line)))
            except ValueError as exc:
                raise ValueError(f"{path}, line {number}: {exc}") from exc
    return tasks


def arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, *, capacity: int
) -> argparse.Namespace:
    """Adds `--tasks`, `--uds` or `--port`, and `--capacity`, and reads the command line."""
    parser.add_argument("--tasks", type=Path, required=True, help="JSON lines, one task a line")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds", type=Path, help="path of the UNIX socket to listen on")
    where.add_argument("--port", type=int, help="port on 127.0.0.1")
    where.add_argument("--fd", type=int, help="descriptor of an inherited listening socket")
    parser.add_argument("--capacity", type=int, default=capacity, help="episodes at a time")
    return parser.parse_args(argv)


def serve(args: argparse.Namespace, build: Callable[[], Any]) -> None:
    """Serve the application that `build` makes, until a signal. `build` may import openenv."""
    # openenv imports gradio for a page that is not served here: two thirds of the start, half of
    # the memory. The variable would ask for that page.
    sys.modules["gradio"] = None  # type: ignore[assignment]
    os.environ.pop("ENABLE_WEB_INTERFACE", None)
    import uvicorn

    # uvicorn raises the signal again after its shutdown; this turns it into an orderly exit.
    signal.signal(signal.SIGTERM, _leave)
    uvicorn.run(
        build(),
        host="127.0.0.1",
        port=args.port or 0,
        uds=str(args.uds) if args.uds else None,
        fd=args.fd,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
