"""Folders of files and a shell."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.base import Segments
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalSpec
from orchestrator.environments.terminal.tasks import TaskSpec, dump_jsonl


class TerminalKind:
    """Folders of files and a shell; the product's own server."""

    capacity = 64
    resets_by_key = True
    summary = "Files for each task and a real shell in the sandbox; graded by the answer."
    source_fields: Sequence[Field] = ()
    task_fields: Sequence[Field] = (
        Field("files", "Files", "files", is_required=True, help="Laid out before the agent acts."),
        Field("answer", "Answer", is_required=True, is_secret=True),
        Field(
            "match",
            "Compared as",
            "choice",
            choices=(("exact", "text"), ("number", "number")),
            default="exact",
        ),
        Field("max_steps", "Steps at most", "integer", default=4),
    )
    _answer = re.compile(r"answer\s*:\s*(.*)", re.IGNORECASE)

    def check_source(self, source: Mapping[str, Any]) -> None:
        """Everything fits: nothing is said of the environment as a whole."""

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        _task(spec)

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> LocalSpec:
        """Writes the tasks, answers included, to a file that only this user can read."""
        tasks = [_task(spec) for spec in specs]
        if not tasks:
            raise ValueError("a terminal environment needs at least one task")
        content = json.dumps([task.as_json() for task in tasks], sort_keys=True)
        folder = data / name
        path = folder / f"tasks-{hashlib.sha256(content.encode()).hexdigest()[:16]}.jsonl"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            dump_jsonl(tasks, path)
        module = "orchestrator.environments.terminal.server"
        return LocalSpec(
            name=name,
            command=(
                *(sys.executable, "-m", module, "--tasks", str(path.resolve())),
                *("--uds", "{socket}", "--capacity", str(self.capacity)),
            ),
            capacity=self.capacity,
            max_servers=resources.max_servers,
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


def _task(spec: Mapping[str, Any]) -> TaskSpec:
    """Of a stored specification: what only the table of tasks knows is no concern of the server."""
    unknown = {"key": "x", "split": "train", "family": "", "prompt": "", "reference": ()}
    return TaskSpec.from_json({**unknown, **spec})
