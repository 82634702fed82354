"""An ASGI application that answers with the number of its process; `/stay` goes on until its client
leaves, so that no time limit ends the connection.
"""

from __future__ import annotations

import os
from typing import Any


async def application(scope: Any, receive: Any, send: Any) -> None:
    stays = scope["path"] == "/stay"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = str(os.getpid()).encode()
    await send({"type": "http.response.body", "body": body, "more_body": stays})
    while stays:
        stays = (await receive())["type"] != "http.disconnect"
