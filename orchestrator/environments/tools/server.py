"""The process of the kind `tools`: `python -m orchestrator.environments.tools.server`.

Runs in the sandbox, where it inherits its listening socket (`--fd`). It executes what the author
wrote, so it must not run elsewhere for authors who are not trusted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.environments.tasks_file import arguments, read_tasks, serve
from orchestrator.environments.tools.tasks import ToolSource, ToolTask

CAPACITY = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Exit code 2: the files do not fit; the message tells what."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.environments.tools.server",
        description="Serve calls of tools as an OpenEnv environment (WebSocket sessions at /ws).",
        epilog="reset: {task: KEY}. step: {type: call_tool, tool_name: NAME, arguments: {}} or "
        "{type: list_tools}.",
    )
    parser.add_argument(
        "--source", type=Path, required=True, help="JSON: where the tools come from"
    )
    args = arguments(parser, argv, capacity=CAPACITY)
    try:
        source = ToolSource.from_json(json.loads(args.source.read_text(encoding="utf-8")))
        tasks = read_tasks(
            args.tasks, lambda record: ToolTask.from_json(record, has_grade=source.has_grade)
        )
    except (OSError, ValueError) as exc:
        print(f"tools environment: {exc}", file=sys.stderr)
        return 2

    def build() -> object:
        from orchestrator.environments.tools.environment import build_app

        kept = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE")
        proxies = [name for name in os.environ if name.lower().endswith("_proxy")]
        environ = {name: os.environ[name] for name in (*kept, *proxies) if name in os.environ}
        return build_app(source, tasks, capacity=args.capacity, environ=environ)

    serve(args, build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
