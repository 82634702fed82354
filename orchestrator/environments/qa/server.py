"""The process of the qa kind: `python -m orchestrator.environments.qa.server`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from orchestrator.environments.qa.answers import QaTask
from orchestrator.environments.tasks_file import arguments, read_tasks, serve

CAPACITY = 128
"""Episodes at a time. An episode is a question and a verdict: it costs next to nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Exit code 2: the tasks cannot be served; the message says why."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.environments.qa.server",
        description="Serve questions as an OpenEnv environment (WebSocket sessions at /ws).",
        epilog="reset: {task: KEY}. step: {answer: TEXT}.",
    )
    args = arguments(parser, argv, capacity=CAPACITY)
    try:
        tasks = read_tasks(args.tasks, QaTask.from_json)
    except (OSError, ValueError) as exc:
        print(f"qa environment: {exc}", file=sys.stderr)
        return 2

    def build() -> object:
        from orchestrator.environments.qa.environment import build_app

        return build_app(tasks, capacity=args.capacity)

    serve(args, build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
