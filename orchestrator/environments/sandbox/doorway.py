"""A listening socket inside a sandbox's network, held outside it.

The proxy's address inside is `127.0.0.1:3128`. The socket is made by a short-lived helper that
enters the network namespace of the sandbox's first process and sends the socket back, so nothing of
ours runs inside: no forwarder that the agent could stop or replace, no path that it could
exchange. What connects arrives in this process; the socket itself never enters the sandbox.

The helper is this file, run without site packages (about 20 ms). A namespace is entered by a
process of its own because a user namespace can only be entered by one without threads.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import time

ADDRESS = ("127.0.0.1", 3128)
PROXY_URL = f"http://{ADDRESS[0]}:{ADDRESS[1]}"
VARIABLES = {
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
"""What programs inside need to find the proxy. Plain HTTP goes there too, to be refused aloud."""
HELPER_S = 5.0
_NS_GET_USERNS = 0xB701  # <linux/nsfs.h>
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>


def open_doorway(pid: int, uid: int | None) -> socket.socket:
    """The listening socket in the network of process `pid`.

    `uid`: the user whom the helper becomes first, the owner of the namespace; None: stay.
    `OSError` with the helper's words if it cannot be made.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with here, there:
        command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(pid)]
        try:
            done = subprocess.run(
                [*command, "" if uid is None else str(uid), str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                timeout=HELPER_S,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise OSError(f"no socket within {HELPER_S:g} s") from exc
        there.close()
        _, fds, _, _ = socket.recv_fds(here, 1, 1)
        if done.returncode != 0 or not fds:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise OSError(said[-1] if said else f"the helper ended with {done.returncode}")
        return socket.socket(fileno=fds[0])


def child_pid(report_fd: int) -> int | None:
    """The sandbox's first process, from bubblewrap's report. Waits for it to be told."""
    text = b""
    while b"\n" not in text:
        chunk = os.read(report_fd, 4096)
        if not chunk:
            return None
        text += chunk
    record = json.loads(text.partition(b"\n")[0])
    return record.get("child-pid") if isinstance(record, dict) else None


def main() -> None:
    pid, uid, fd = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if uid:
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(network, _CLONE_NEWNET)
    except PermissionError:
        # The owner of the user namespace that the network belongs to has its rights inside.
        _enter(fcntl.ioctl(network, _NS_GET_USERNS), _CLONE_NEWUSER)
        _enter(network, _CLONE_NEWNET)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    deadline = time.monotonic() + HELPER_S / 2
    while True:
        try:
            listener.bind(ADDRESS)
            break
        except OSError as exc:
            # Bubblewrap is about to set up the loopback interface.
            if exc.errno != errno.EADDRNOTAVAIL or time.monotonic() > deadline:
                raise
            os.sched_yield()
    listener.listen(128)
    with socket.socket(fileno=fd) as there:
        socket.send_fds(there, [b"."], [listener.fileno()])


def _enter(namespace: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
