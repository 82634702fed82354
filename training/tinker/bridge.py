"""The model server's API over weights on a Tinker-protocol server.

`python -m training.tinker.bridge --base-url URL --model NAME --tokenizer DIR --port N`. Routes and
answers are those of `training.serve`; `POST /v1/adapters` takes the folders that a job on such a
server publishes. The server's key is read from TINKER_API_KEY. On loopback alone, since whoever
reaches it samples at that key's cost; it ends with the process that started it.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

KEY_VARIABLE = "TINKER_API_KEY"
LOOK_S = 1.0
GRACE_S = 5


def _end_with(parent: int) -> None:
    """Looks again and again: the kernel's signal comes at the end of the thread that started us."""
    never = threading.Event()
    while not never.wait(LOOK_S):
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
            return


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parent = os.getppid()
    parser = argparse.ArgumentParser(prog="python -m training.tinker.bridge", description=__doc__)
    parser.add_argument("--base-url", required=True, help="the Tinker server")
    parser.add_argument("--model", required=True, help="name of the base model there")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with the tokenizer")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    if not (options.tokenizer / "tokenizer.json").is_file():
        print(f"error: {options.tokenizer} has no tokenizer.json", file=sys.stderr)
        return 1
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Here: what is wrong with the arguments, or missing, is said first and at once.
    import uvicorn

    from training.engine.api import create_app
    from training.errors import TrainingError

    try:
        from training.tinker.sampler import RemoteSampler

        sampler = RemoteSampler(
            base_url=options.base_url,
            api_key=os.environ.get(KEY_VARIABLE, ""),
            name=options.model,
            folder=options.tokenizer,
        )
    except (OSError, ValueError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        hint = "; pip install -r requirements/tinker.txt" if error.name == "tinker" else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        return 1
    uvicorn.run(
        create_app(sampler),
        host="127.0.0.1",
        port=options.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=60,
        backlog=1024,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
