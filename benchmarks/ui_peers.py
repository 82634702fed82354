"""Phoenix and MLflow beside us on one trace of the reference size; a script of its own.

    python -m benchmarks.ui_peers --python PEERS/bin/python [--only phoenix] [--events 32843]

PEERS is a virtual environment with `arize-phoenix`, `mlflow`, `opentelemetry-sdk` and
`opentelemetry-exporter-otlp-proto-http`; none of them is a dependency. Each server runs alone on an
empty SQLite folder and gets the events of `ui_traces` as spans below one root, by OTLP in batches
of 500. Figures: start until the first answer, sending, from the last answer until the trace can be
asked for, and from its address to the first and a late part of it on the screen, with the bytes
that the browser read. A part that does not come within the limit has no number.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.children import tied
from benchmarks.figures import Figure
from benchmarks.stack import use_temporary_data

LIMIT_S = 180.0
SENDER = Path(__file__).with_name("ui_peers_sender.py")


@dataclass(frozen=True)
class Peer:
    name: str
    command: Callable[[str, int, str], list[str]]
    """From interpreter, port and folder."""
    env: Callable[[int, str], dict[str, str]]
    alive: str
    headers: dict[str, str]
    page: Callable[[str, str], str | None]
    """The address of the trace's page, or None while the server does not have all of it."""


def run(options: Sequence[str] = ()) -> Iterator[Figure]:
    parser = argparse.ArgumentParser(prog="ui_peers")
    parser.add_argument("--python", required=True, help="interpreter of the peers' environment")
    parser.add_argument("--only", choices=[peer.name for peer in PEERS], action="append")
    parser.add_argument("--events", type=int, default=32_843)
    chosen = parser.parse_args(list(options))
    with use_temporary_data(), tempfile.TemporaryDirectory() as folder:
        from benchmarks.ui_traces import _payloads

        lines = Path(folder, "events.jsonl")
        with lines.open("w", encoding="utf-8") as out:
            for kind, payload in _payloads(chosen.events, random.Random(0), is_ended=True):
                out.write(json.dumps([kind, json.dumps(payload)]) + "\n")
        yield Figure("peers.load_of_the_machine", os.getloadavg()[0], None)
        for peer in PEERS:
            if not chosen.only or peer.name in chosen.only:
                yield from _measure(peer, chosen.python, lines, folder)


def _measure(peer: Peer, python: str, lines: Path, folder: str) -> Iterator[Figure]:
    own = Path(folder, peer.name)
    own.mkdir()
    started_s = time.monotonic()
    with _serving(peer, python, own) as url:
        yield Figure(f"peers.{peer.name}.start_s", time.monotonic() - started_s, None)
        answer = subprocess.run(
            tied([python, str(SENDER), f"{url}/v1/traces", json.dumps(peer.headers), str(lines)]),
            capture_output=True,
            text=True,
            timeout=1_800,
        )
        if answer.returncode:
            raise SystemExit(f"{peer.name}: {answer.stderr[-2_000:]}")
        sent = json.loads(answer.stdout.splitlines()[-1])
        yield Figure(f"peers.{peer.name}.send_s", sent["seconds"], None)
        yield Figure(f"peers.{peer.name}.spans_refused", sent["refused"], None)
        started_s = time.monotonic()
        page = _until(lambda: peer.page(url, sent["trace"]))
        stored_s = time.monotonic() - started_s if page else math.nan
        yield Figure(f"peers.{peer.name}.stored_after_s", stored_s, None)
        if page:
            yield from _open(peer, page)


def _open(peer: Peer, address: str) -> Iterator[Figure]:
    from playwright.sync_api import Error, sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        read: list[float] = []
        session.on("Network.loadingFinished", lambda told: read.append(told["encodedDataLength"]))
        started_s = time.monotonic()
        shown_s = math.nan
        try:
            page.goto(address, wait_until="commit", timeout=LIMIT_S * 1_000)
            page.get_by_text("event 1 ").first.wait_for(timeout=LIMIT_S * 1_000)
            shown_s = time.monotonic() - started_s
        except Error as error:
            print(f"{peer.name}: {str(error)[:300]}", file=sys.stderr)
        yield Figure(f"peers.{peer.name}.first_events_on_screen_s", shown_s, None)
        yield Figure(f"peers.{peer.name}.read_bytes", sum(read), None)
        nodes = float(page.evaluate("document.querySelectorAll('*').length"))
        yield Figure(f"peers.{peer.name}.elements_in_the_page", nodes, None)
        browser.close()


@contextmanager
def _serving(peer: Peer, python: str, folder: Path) -> Iterator[str]:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            tied(peer.command(python, port, str(folder))),
            env={**os.environ, **peer.env(port, str(folder))},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            if not _until(lambda: _get(url + peer.alive) is not None):
                raise SystemExit(f"{peer.name}: {(folder / 'log').read_text()[-2_000:]}")
            yield url
        finally:
            os.killpg(server.pid, 15)
            server.wait(60)


def _until(look: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        if found := look():
            return found
        time.sleep(0.2)
    return None


def _get(url: str, body: Any = None) -> Any:
    """The JSON of an answer, or its text; None where there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _phoenix_page(url: str, trace: str) -> str | None:
    query = "{ projects { edges { node { id name recordCount } } } }"
    told = _get(f"{url}/graphql", {"query": query}) or {}
    for edge in ((told.get("data") or {}).get("projects") or {}).get("edges") or ():
        node = edge["node"]
        if node["recordCount"]:
            same = _phoenix_seen.get(url) == node["recordCount"]
            _phoenix_seen[url] = node["recordCount"]
            # Spans arrive after they were acknowledged: all are there once the number stands.
            if same:
                return f"{url}/projects/{node['id']}/traces/{trace}"
    return None


_phoenix_seen: dict[str, int] = {}


def _mlflow_page(url: str, trace: str) -> str | None:
    told = _get(f"{url}/api/3.0/mlflow/traces/tr-{trace}")
    if not isinstance(told, dict):
        return None
    return f"{url}/#/experiments/0/traces?selectedEvaluationId=tr-{trace}"


PEERS = (
    Peer(
        "phoenix",
        lambda python, port, folder: [python, "-m", "phoenix.server.main", "serve"],
        lambda port, folder: {
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(port + 1),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_WORKING_DIR": folder,
            "PHOENIX_TELEMETRY_ENABLED": "false",
        },
        "/healthz",
        {},
        _phoenix_page,
    ),
    Peer(
        "mlflow",
        lambda python, port, folder: [
            *(python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"),
        ],
        lambda port, folder: {"MLFLOW_DISABLE_TELEMETRY": "true"},
        "/health",
        {"x-mlflow-experiment-id": "0"},
        _mlflow_page,
    ),
)

if __name__ == "__main__":
    for figure in run(sys.argv[1:]):
        print(figure.line(), flush=True)
