"""The REST API as a patient program uses it: again under the same key until it is answered."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE_S = 150.0


class Refused(AssertionError):
    """An answer that says no, though nothing was wrong with the request."""


@dataclass
class Client:
    urls: Sequence[str]
    token: str
    project_id: int
    troubles: dict[str, int] = field(default_factory=dict)
    """Answers and faults that made it try again, by kind."""

    def __post_init__(self) -> None:
        self._turn = itertools.count()

    def post(self, path: str, body: Any) -> dict[str, Any]:
        key = str(uuid.uuid4())
        return self.send("POST", path, json=body, headers={"Idempotency-Key": key})

    def get(self, path: str) -> dict[str, Any]:
        return self.send("GET", path)

    def send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """The answer to a request that is repeated while it is not answered. Raises Refused."""
        headers = {**options.pop("headers", {}), "Authorization": f"Bearer {self.token}"}
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            url = f"{self.urls[next(self._turn) % len(self.urls)]}/api/v1/projects/"
            url += f"{self.project_id}/{path}"
            try:
                answer = httpx.request(method, url, headers=headers, timeout=30, **options)
            except httpx.HTTPError as fault:
                self._note(type(fault).__name__)
            else:
                if answer.is_success:
                    found: dict[str, Any] = answer.json()
                    return found
                self._note(str(answer.status_code))
                if answer.status_code < 500 and answer.status_code != 429:
                    raise Refused(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
            if time.monotonic() > deadline_s:
                raise Refused(f"{method} {path}: no answer within {PATIENCE_S:g} s")
            time.sleep(0.3)  # noqa: TID251 # a polite client waits

    def _note(self, kind: str) -> None:
        self.troubles[kind] = self.troubles.get(kind, 0) + 1
