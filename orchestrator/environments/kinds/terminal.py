"""Folders of files and a shell."""

from __future__ import annotations

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
from orchestrator.environments.tasks_file import write_tasks
from orchestrator.environments.terminal.spec import MAX_STEPS, TaskSpec


class TerminalKind:
    """Folders of files and a shell; the product's own server."""

    capacity = 64
    resets_by_key = True
    summary = "Files for each task and a shell; graded by the answer or by a verifier of yours."
    source_fields: Sequence[Field] = ()
    task_fields: Sequence[Field] = (
        Field("files", "Files", "files", help="Laid out before the agent acts."),
        Field("answer", "Answer", is_secret=True, help="Needed unless there is a verifier."),
        Field(
            "match",
            "Compared as",
            "choice",
            choices=(("exact", "text"), ("number", "number")),
            default="exact",
        ),
        Field("max_steps", "Steps at most", "integer", default=MAX_STEPS),
        Field(
            "verifier",
            "Verifier",
            "shell",
            is_secret=True,
            help="Runs at the end on a copy of the agent's folder, $RESULT. Status 0: 1, "
            "status 1: 0, a last line `reward: x`: x; all else is an error.",
        ),
        Field(
            "verifier_language",
            "Verifier's language",
            "choice",
            choices=(("shell", "shell"), ("python", "Python")),
            default="shell",
        ),
        Field(
            "verifier_files",
            "Verifier's files",
            "files",
            is_secret=True,
            help="In its working directory, /verifier; never where the agent acts.",
        ),
        Field("verifier_timeout_s", "Verifier's seconds at most", "number", default=10),
    )
    _answer = re.compile(r"answer\s*:\s*(.*)", re.IGNORECASE)

    def check_source(self, source: Mapping[str, Any]) -> None:
        """Everything fits: nothing is said of the environment as a whole."""

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        TaskSpec.from_json(spec)

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
        tasks = [TaskSpec.from_json(spec) for spec in specs]
        if not tasks:
            raise ValueError("a terminal environment needs at least one task")
        capacity = resources.slots or self.capacity
        path = write_tasks([task.as_json() for task in tasks], data / name)
        module = "orchestrator.environments.terminal.server"
        return LocalSpec(
            name=name,
            command=(
                *(sys.executable, "-m", module, "--tasks", str(path)),
                *("--uds", "{socket}", "--capacity", str(capacity)),
                *_network(resources, data / name),
            ),
            capacity=capacity,
            max_servers=resources.max_servers,
            probe={"task": tasks[0].key},
        )

    def action_of(self, reply: str) -> Action:
        """The first line that is not empty: `answer: …`, `done`, else a command."""
        line = next((line.strip() for line in reply.splitlines() if line.strip()), "")
        if line.lower() in ("done", "done."):
            # No command of this name exists; it ends tasks that ask for no answer.
            return {"answer": "done"}
        match = self._answer.fullmatch(line)
        return {"answer": match.group(1)} if match else {"command": line}

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        return [dict(segment) for segment in observation["segments"]] or [
            {"kind": "scaffold", "text": "(the episode is over)"}
        ]


def _network(resources: Resources, folder: Path) -> tuple[str, ...]:
    """For the commands of agents; the server itself needs none."""
    if resources.network.mode == "none":
        return ()
    network = json.dumps(resources.as_json()["network"])
    return ("--network", network, "--decisions", str((folder / "decisions.jsonl").resolve()))
