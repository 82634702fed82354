"""Waiting for the server with a limit."""

from __future__ import annotations

import subprocess
import threading
import time

import httpx


def wait_until_ready(
    client: httpx.Client, process: subprocess.Popen[bytes], *, timeout_s: float
) -> None:
    """Returns when /health answers; fails if the process ends or the time is up."""
    limit = time.monotonic() + timeout_s
    pause = threading.Event()
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}")
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pause.wait(0.05)
    raise AssertionError(f"the server was not ready within {timeout_s} s")
