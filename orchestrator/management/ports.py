from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable


class PortInUseError(RuntimeError):
    """Another process listens on a port that is needed."""


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the servers do: a connection in TIME_WAIT does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_for_port(
    host: str, port: int, *, limit_s: float, how_to_change: str, say: Callable[[str], None]
) -> None:
    """Returns once the port is free; PortInUseError after `limit_s`.

    It waits since the children of a supervisor that was killed need a moment to end.
    """
    deadline_s = time.monotonic() + limit_s
    is_told = False
    while not is_free(host, port):
        if time.monotonic() > deadline_s:
            raise PortInUseError(
                f"Port {port} is in use by another program. Choose another: {how_to_change}."
            )
        if not is_told:
            say(f"port {port} is in use, waiting up to {limit_s:g} s for it")
            is_told = True
        threading.Event().wait(0.1)
