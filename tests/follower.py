"""A client of the live feed that behaves as the browser's does."""

from __future__ import annotations

import json
import threading

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from orchestrator.events.models import Stream
from orchestrator.projects.models import User
from tests.live import LiveStack, session_cookie


def open_socket(
    stack: LiveStack, stream_id: int, user: User | None, *, origin: str | None = None
) -> ClientConnection:
    headers = {} if user is None else {"Cookie": f"sessionid={session_cookie(user)}"}
    return connect(
        f"{stack.url.replace('http', 'ws')}/ws/streams/{stream_id}/",
        additional_headers=headers,
        origin=Origin(origin or stack.url),
        legacy=True,
    )


class Follower(threading.Thread):
    """A client as the browser's: it connects again and asks for what comes after its last."""

    def __init__(
        self, stack: LiveStack, stream: Stream, user: User, last_seq: int | None = None
    ) -> None:
        """Ends at `last_seq`; without one, when it is set later."""
        super().__init__(daemon=True)
        self.stack, self.stream, self.user, self.last_seq = stack, stream, user, last_seq
        self.seqs: list[int] = []
        self.connections = 0

    def run(self) -> None:
        while not self.is_there():
            try:
                with open_socket(self.stack, self.stream.pk, self.user) as socket:
                    self.connections += 1
                    socket.send(json.dumps({"after": self.seqs[-1] if self.seqs else 0}))
                    while not self.is_there():
                        frame = json.loads(socket.recv(timeout=10))
                        self.seqs += [event["seq"] for event in frame["events"]]
            except (OSError, ConnectionClosed, InvalidStatus, EOFError):
                threading.Event().wait(0.1)

    def is_there(self) -> bool:
        last = self.seqs[-1] if self.seqs else 0
        return self.last_seq is not None and last >= self.last_seq
