"""What differs between kinds of environments, behind one small interface.

A kind says how its server is run, how an agent's reply becomes an action, and how an observation
reads, piece by piece with what each piece is. To add a kind: write a class with these three
methods and put it into `KINDS`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from orchestrator.environments.episode import Action
from orchestrator.environments.provider import ServerSpec
from orchestrator.environments.terminal.tasks import TaskSpec, dump_jsonl

Segments = list[dict[str, str]]
"""Pieces of what an agent reads: `kind` (env_output, scaffold, warning) and `text`."""


Spec = Mapping[str, Any]
"""What a server needs to know of one task; for the terminal kind `TaskSpec.as_json()`."""


class Kind(Protocol):
    """See the module's text."""

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> ServerSpec | None:
        """How to run a server for tasks with these specs; None if somebody else runs it.

        May write what the server needs below `data / name`.
        """

    def action_of(self, reply: str) -> Action:
        """An agent's reply as an action. What does not fit is refused later, by the schema."""

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        """What the agent reads of an observation. Never empty."""


class TerminalKind:
    """Folders of files and a shell; the product's own server."""

    capacity = 64
    _answer = re.compile(r"answer\s*:\s*(.*)", re.IGNORECASE)

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> ServerSpec | None:
        """Writes the tasks, answers included, to a file that only this user can read."""
        tasks = [TaskSpec.from_json(spec) for spec in specs]
        if not tasks:
            raise ValueError("a terminal environment needs at least one task")
        content = json.dumps([task.as_json() for task in tasks], sort_keys=True)
        folder = data / name
        path = folder / f"tasks-{hashlib.sha256(content.encode()).hexdigest()[:16]}.jsonl"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            dump_jsonl(tasks, path)
        module = "orchestrator.environments.terminal.server"
        return ServerSpec(
            name=name,
            command=(
                *(sys.executable, "-m", module, "--tasks", str(path.resolve())),
                *("--uds", "{socket}", "--capacity", str(self.capacity)),
            ),
            capacity=self.capacity,
            probe={"task": tasks[0].key},
        )

    def action_of(self, reply: str) -> Action:
        """The first line that is not empty: `answer: …`, else a command."""
        line = next((line.strip() for line in reply.splitlines() if line.strip()), "")
        match = self._answer.fullmatch(line)
        return {"answer": match.group(1)} if match else {"command": line}

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        return [dict(segment) for segment in observation["segments"]] or [
            {"kind": "scaffold", "text": "(the episode is over)"}
        ]


class UrlKind:
    """An OpenEnv server that somebody else runs. Actions are JSON objects of its schema."""

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> ServerSpec | None:
        return None

    def action_of(self, reply: str) -> Action:
        """The reply as a JSON object, a surrounding code fence removed; else the text itself."""
        text = re.sub(r"^```\w*\s*|\s*```$", "", reply.strip())
        try:
            action = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return reply
        return action if isinstance(action, dict) else reply

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        """The only text, or all fields as JSON: everything comes from the environment."""
        if len(observation) == 1 and isinstance(text := next(iter(observation.values())), str):
            return [{"kind": "env_output", "text": text}]
        return [{"kind": "env_output", "text": json.dumps(observation, ensure_ascii=False)}]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


KINDS: dict[str, Kind] = {"terminal": TerminalKind(), "url": UrlKind()}
