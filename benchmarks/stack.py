"""A `manage.py up` on a temporary data folder, for benchmarks that need the real server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import tied

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Up:
    url: str
    pid: int
    first_page_s: float
    """From the start of the command to the first page."""


def use_temporary_data() -> tempfile.TemporaryDirectory[str]:
    """Points this process and its children at an empty, migrated data folder; sets Django up."""
    folder = tempfile.TemporaryDirectory(prefix="switchback-bench-", ignore_cleanup_errors=True)
    _use(folder.name)
    return folder


@contextmanager
def use_data(folder: Path) -> Iterator[None]:
    """As `use_temporary_data`, with a folder that stays."""
    folder.mkdir(parents=True, exist_ok=True)
    _use(str(folder.resolve()))
    yield


def _use(folder: str) -> None:
    os.environ["SWITCHBACK_DATA"] = folder
    os.environ["STACK"] = "embedded"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
    os.environ.setdefault("SWITCHBACK_LOG_LEVEL", "WARNING")
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


@contextmanager
def running(*, page: str = "/healthz", limit_s: float = 60.0, model: bool = False) -> Iterator[Up]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started_s = time.monotonic()
    command = [sys.executable, "manage.py", "up", "--port", str(port)]
    if not model:
        command.append("--no-model")
    process = subprocess.Popen(tied(command), cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while not _answers(url + page):
            if process.poll() is not None or time.monotonic() - started_s > limit_s:
                raise RuntimeError(f"`manage.py up` does not answer at {url}{page}")
            time.sleep(0.02)
        yield Up(url=url, pid=process.pid, first_page_s=time.monotonic() - started_s)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
