"""A server that keeps comments as GitHub and GitLab do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LISTS = (
    re.compile(r"^/repos/o/r/issues/12/comments$"),
    re.compile(r"^/projects/7/merge_requests/12/notes$"),
)
ONE = (
    ("PATCH", re.compile(r"^/repos/o/r/issues/comments/(\d+)$")),
    ("PUT", re.compile(r"^/projects/7/merge_requests/12/notes/(\d+)$")),
)


@dataclass
class Forge:
    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    """What came as a token."""

    def environ(self, kind: str) -> dict[str, str]:
        """As a job of that system sees it."""
        if kind == "gitlab":
            return {
                "CI_API_V4_URL": self.url,
                "CI_PROJECT_ID": "7",
                "CI_MERGE_REQUEST_IID": "12",
                "GITLAB_TOKEN": "glpat",
            }
        own = {"GITHUB_API_URL": self.url, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "ghs"}
        if kind == "jenkins":
            return {**own, "CHANGE_ID": "12"}
        return {**own, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF_NAME": "12/merge"}


@contextmanager
def forge() -> Iterator[Forge]:
    kept = Forge()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if not any(at.match(url.path) for at in LISTS):
                return self._answer(404, {})
            query = parse_qs(url.query)
            each, page = int(query["per_page"][0]), int(query["page"][0])
            self._answer(200, kept.comments[each * (page - 1) : each * page])

        def do_POST(self) -> None:
            if not any(at.match(self.path) for at in LISTS):
                return self._answer(404, {})
            made = {"id": 100 + len(kept.comments), "body": self._body()}
            kept.comments.append(made)
            self._answer(201, made)

        def do_PATCH(self) -> None:
            self._edit()

        def do_PUT(self) -> None:
            self._edit()

        def _edit(self) -> None:
            for verb, at in ONE:
                found = at.match(self.path)
                if found and verb == self.command:
                    one = next(c for c in kept.comments if c["id"] == int(found[1]))
                    one["body"] = self._body()
                    return self._answer(200, one)
            self._answer(404, {})

        def _body(self) -> str:
            size = int(self.headers["Content-Length"])
            return str(json.loads(self.rfile.read(size))["body"])

        def _answer(self, status: int, told: Any) -> None:
            private = self.headers.get("PRIVATE-TOKEN")
            kept.secrets.append(private or self.headers.get("Authorization") or "")
            content = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
