"""An ASGI application that answers with the number of its process."""

from __future__ import annotations

import os
from typing import Any


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
