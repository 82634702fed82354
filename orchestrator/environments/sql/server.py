"""The process of the sql kind: `python -m orchestrator.environments.sql.server`.

For Postgres the connection string comes in the environment variable `SQL_DSN`, which no command
line shows.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sql.engine import Engine
from orchestrator.environments.sql.sqlite import SqliteEngine
from orchestrator.environments.sql.tasks import SqlTask
from orchestrator.environments.tasks_file import arguments, read_tasks, serve

CAPACITY = 64
"""Episodes at a time. Each that has run a statement holds a process of about 10 MB."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Exit code 2: the tasks cannot be served; the message says why."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.environments.sql.server",
        description="Serve database tasks as an OpenEnv environment (WebSocket sessions at /ws).",
        epilog="reset: {task: KEY}. step: {sql: TEXT}, {answer: TEXT} or {done: true}.",
    )
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    args = arguments(parser, argv, capacity=CAPACITY)
    try:
        tasks = read_tasks(args.tasks, SqlTask.from_json)
        engine = _engine(args.engine)
    except (OSError, ValueError, SandboxError) as exc:
        print(f"sql environment: {exc}", file=sys.stderr)
        return 2

    def build() -> object:
        from orchestrator.environments.sql.environment import build_app

        return build_app(tasks, engine=engine, capacity=args.capacity)

    try:
        serve(args, build)
    finally:
        engine.close()
    return 0


def _engine(name: str) -> Engine:
    if name == "sqlite":
        return SqliteEngine()
    from orchestrator.environments.sql.postgres import PostgresEngine

    return PostgresEngine(os.environ.pop("SQL_DSN", ""))


if __name__ == "__main__":
    sys.exit(main())
