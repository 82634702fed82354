#!/usr/bin/env python3
"""A stand-in for the program `docker`, for machines without one: put on the PATH as `docker`.

It keeps what it was asked for in the folder that DOCKER_CONFIG names (`calls.jsonl`), knows images
that have a file `images/NAME.json` there, and runs a container as a real process: an OpenEnv server
on a loopback address of its own. So the code that calls it runs for real; what Docker itself does
with the limits is not shown here. `images/NAME.json` holds `target` (a module of the doubles), or
`exit` (the container prints `say` and ends with that status).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STATE = Path(os.environ["DOCKER_CONFIG"])
DOUBLES = Path(__file__).resolve().parent
SERVE = "import sys; sys.modules['gradio'] = None; import uvicorn; uvicorn.main()"
VALUED = {
    "--name", "--label", "--memory", "--memory-swap", "--cpus", "--pids-limit", "--tmpfs",
    "--cap-drop", "--security-opt", "--user", "--log-driver", "--env-file", "--env", "--network",
    "--publish", "--pull",
}  # fmt: skip


def main(argv: list[str]) -> int:
    with (STATE / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(argv) + "\n")
    match argv:
        case ["image", "inspect", image]:
            known = _image(image)
            if known is None:
                return _refuse(f"Error response from daemon: No such image: {image}")
            print(json.dumps([{"Id": known["id"], "RepoDigests": known.get("digests", [])}]))
        case ["pull", *_, image]:
            remote = STATE / "registry" / f"{_file(image)}.json"
            if not remote.is_file():
                return _refuse(f"Error response from daemon: pull access denied for {image}")
            (STATE / "images").mkdir(exist_ok=True)
            (STATE / "images" / remote.name).write_text(remote.read_text())
        case ["network", "create", *_, name]:
            (STATE / f"network-{name}.json").write_text(json.dumps(argv))
        case ["network", "rm", name]:
            (STATE / f"network-{name}.json").unlink()
        case ["network", "ls", *_]:
            _list("network")
        case ["ps", *_]:
            _list("container")
        case ["run", *options]:
            return _run(options)
        case ["inspect", *_, name]:
            print(_container(name)["host"])
        case ["port", name, _]:
            print(f"{_container(name)['host']}:{_container(name)['port']}")
        case ["stop", *_, name] | ["rm", "--force", name]:
            _stop(name)
        case _:
            return _refuse(f"docker: unknown command {argv}")
    return 0


def _run(options: list[str]) -> int:
    values: dict[str, list[str]] = {}
    at = 0
    while options[at].startswith("-"):
        if options[at] in VALUED:
            values.setdefault(options[at], []).append(options[at + 1])
            at += 1
        at += 1
    image, name = options[at], values["--name"][0]
    known = _image(image)
    if known is None:
        return _refuse(f"docker: Error response from daemon: No such image: {image}")
    if "exit" in known:
        print(known["say"], flush=True)
        return int(known["exit"])
    env = dict(
        line.split("=", 1) for line in Path(values["--env-file"][0]).read_text().split("\n") if line
    )
    is_published = "--publish" in values
    # An address and a port of its own: containers on an inner network all listen on one port.
    host = (
        "127.0.0.1" if is_published else f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
    )
    port = known["free_port"] if is_published else 8000
    arguments = [f"{known['target']}:app", "--app-dir", str(DOUBLES), "--log-level", "warning"]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, *arguments, "--host", host, "--port", str(port)],
        env={"PATH": os.environ["PATH"], **env},
    )
    (STATE / f"container-{name}.json").write_text(
        json.dumps({"host": host, "port": port, "server": server.pid, "labels": values["--label"]})
    )
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    return server.wait()


def _stop(name: str) -> None:
    """Ends the container's process; one that is gone is an error, as with Docker."""
    path = STATE / f"container-{name}.json"
    if not path.exists():
        raise SystemExit(_refuse(f"Error response from daemon: No such container: {name}"))
    pid = json.loads(path.read_text())["server"]
    path.unlink()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
            os.sched_yield()


def _list(kind: str) -> None:
    for path in STATE.glob(f"{kind}-*.json"):
        stored = json.loads(path.read_text())
        labels = stored["labels"] if kind == "container" else stored
        worker = next(t.partition("=")[2] for t in labels if t.startswith("org.switchback.worker="))
        print(path.stem.removeprefix(f"{kind}-"), worker)


def _image(name: str) -> dict[str, Any] | None:
    for path in (STATE / "images").glob("*.json"):
        known: dict[str, Any] = json.loads(path.read_text())
        if path.stem == _file(name) or name in (known["id"], *known.get("digests", [])):
            return known
    return None


def _container(name: str) -> dict[str, Any]:
    path = STATE / f"container-{name}.json"
    if not path.exists():
        raise SystemExit(_refuse(f"Error: No such object: {name}"))
    stored: dict[str, Any] = json.loads(path.read_text())
    return stored


def _file(image: str) -> str:
    return image.replace("/", "_").replace(":", "_")


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
