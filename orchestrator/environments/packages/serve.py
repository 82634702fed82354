"""Serves the app of a source. Runs inside the sandbox, on the interpreter of the source's own
virtual environment, and imports nothing of this project.

`python serve.py --fd N` (or `--uds PATH`), with what to serve as JSON in the variable
`SERVE_CONFIG`: other users of a machine may read a command line. Of the ways to import the app the
first that works is taken. If none does, the last lines printed name the first error of each chain:
apps try a second layout after any failure, which hides the reason behind another name.

gradio is kept out of openenv's import, where it costs two thirds of the start and half of the
memory for a page that is not served; an environment that imports it for itself gets it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
from types import FrameType
from typing import Any

PREFIX = "switchback:"
"""Begins each line of this program, to be told from the environment's own output."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int, help="descriptor of a listening UNIX socket")
    where.add_argument("--uds", help="path to listen on")
    args = parser.parse_args()
    config = json.loads(os.environ.pop("SERVE_CONFIG"))
    # Python puts the folder of this file first, where the source must find nothing.
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(__file__)]
    data = _copied(config.get("data"))
    for name, value in config.get("env", {}).items():
        os.environ[name] = value.replace("{data}", data)
    os.environ.pop("ENABLE_WEB_INTERFACE", None)
    _import_openenv_without_gradio()
    if config.get("capacity"):
        _raise_capacity(int(config["capacity"]))
    app = _load(config["apps"])
    if app is None:
        return 3
    import uvicorn

    # uvicorn raises the signal again after its shutdown; this turns it into an orderly exit.
    signal.signal(signal.SIGTERM, _leave)
    uvicorn.run(
        app,
        host="127.0.0.1",
        fd=args.fd,
        uds=args.uds,
        log_level="warning",
        timeout_graceful_shutdown=2,
        ws_max_size=64 * 2**20,
    )
    return 0


def _copied(folder: str | None) -> str:
    """A private copy of the source's data, which episodes may change; its path."""
    if not folder:
        return ""
    copy = os.path.join(os.environ.get("HOME") or "/tmp", "data")
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    return copy


def _import_openenv_without_gradio() -> None:
    sys.modules["gradio"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("openenv.core.env_server.http_server")
    except ImportError as exc:
        # The source may bring a release that is laid out otherwise: its own import will tell.
        print(f"{PREFIX} openenv: {exc}", file=sys.stderr, flush=True)
    finally:
        del sys.modules["gradio"]


def _raise_capacity(capacity: int) -> None:
    """Serve `capacity` episodes at a time of an environment whose code says one.

    The flag in the code is its author's promise that episodes do not share anything; whoever asks
    for this has measured it.
    """
    server = importlib.import_module("openenv.core.env_server.http_server").HTTPEnvServer
    made_by_openenv = server.__init__

    def make(self: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(env, type):
            promised: Any = type(env.__name__, (env,), {"SUPPORTS_CONCURRENT_SESSIONS": True})
            promised.__module__ = env.__module__
        else:

            def promised() -> Any:
                made = env()
                kind = type(made)
                if not kind.SUPPORTS_CONCURRENT_SESSIONS:
                    kind.SUPPORTS_CONCURRENT_SESSIONS = True
                return made

        bound = dict(zip(("action_cls", "observation_cls"), args, strict=False))
        kwargs = {**bound, **kwargs, "max_concurrent_envs": capacity, "concurrency_config": None}
        made_by_openenv(self, promised, **kwargs)

    server.__init__ = make


def _load(apps: list[dict[str, str]]) -> Any:
    """The app, by the first way that works; None with the reasons printed."""
    reasons = []
    for way in apps:
        module_name, _, attribute = way["app"].partition(":")
        known = set(sys.modules)
        sys.path.insert(0, way["root"])
        os.chdir(way["root"])
        try:
            app: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                app = getattr(app, part)
            return app
        except (Exception, SystemExit) as exc:
            reasons.append(f"{way['app']}: {_first_of(exc)}")
            sys.path.remove(way["root"])
            roots = {module_name.partition(".")[0], "server", "models", "client"}
            for name in set(sys.modules) - known:
                if name.partition(".")[0] in roots:
                    del sys.modules[name]
    print(f"{PREFIX} the app cannot be imported", file=sys.stderr)
    for reason in reasons:
        print(f"{PREFIX} {reason}", file=sys.stderr, flush=True)
    return None


def _first_of(error: BaseException) -> str:
    """The error that began the chain, and where it was raised."""
    seen = set()
    while (before := error.__cause__ or error.__context__) and id(before) not in seen:
        seen.add(id(error))
        error = before
    trace, at = error.__traceback__, ""
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<"):
            at = f" ({'/'.join(name.split('/')[-2:])}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{at}"


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
