"""The command line against the real application, in one process.

Requests go to the application without a socket, and where the command would pause, the work that is
queued is done: so a command that waits comes to its end without a clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client

from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from switchback_cli import account, options
from switchback_cli.client import Server
from switchback_cli.main import main
from tests.base import People
from tests.gates.build import AFTER, BEFORE, Rule, worth
from tests.runs.drive import make_endpoint, make_rubric
from tests.searches.playing import make_version, play


class InProcess(httpx.BaseTransport):
    """In the transaction of the test."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {k: v for k, v in request.headers.items() if k not in ("content-type", "host")}
        answer = Client().generic(
            request.method,
            request.url.raw_path.decode(),
            request.read(),
            content_type=request.headers.get("Content-Type", ""),
            headers=headers,
        )
        return httpx.Response(
            answer.status_code,
            headers=dict(answer.items()),
            content=b"".join(answer) if answer.streaming else answer.getvalue(),
        )


@dataclass
class Shell:
    people: People
    version: EnvironmentVersion
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    rule: Rule = field(default_factory=lambda: worth(0.1, 0.9))
    transport: httpx.BaseTransport = field(default_factory=InProcess)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        secret = issue_token(
            actor=self.people.editor,
            project_id=self.people.project.pk,
            name="ci",
            role=Role.EDITOR,
        ).secret
        self.monkeypatch.setenv("SWITCHBACK_URL", "http://testserver")
        self.monkeypatch.setenv("SWITCHBACK_TOKEN", secret)
        self.monkeypatch.setenv("XDG_CONFIG_HOME", str(self.folder / "config"))
        made = account.server_of

        def served(url: str | None, token: str | None, **more: Any) -> Server:
            return made(url, token, transport=self.transport, pause=self.pause, **more)

        self.monkeypatch.setattr(options, "server_of", served)
        for name, text in (("before", BEFORE), ("after", AFTER)):
            (self.folder / name).mkdir()
            (self.folder / name / "instructions.md").write_text(text)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        play(self.rule)

    def run(self, *words: str) -> int:
        return main(words)

    def gate(self, *words: str) -> int:
        common = ["--environment", self.version.environment.slug, "--rubric", "reward"]
        common += ["--model", "small", "--harness", str(self.folder / "after")]
        common += ["--baseline", str(self.folder / "before"), "--rollouts", "240"]
        return self.run("gate", *common, *words)

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


MakeShell = Callable[..., Shell]


def make_shell(people: People, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    version = make_version(people.project, {"select": 12})
    make_rubric(people.project)
    make_endpoint(people.project, "http://127.0.0.1:9", name="small")
    return Shell(people, version, folder, monkeypatch)
