"""Tools: an author's Python functions, or an MCP server."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.base import Segments
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.kinds.foreign import ForeignActions, tool_segment
from orchestrator.environments.packages.installation import interpreter_paths, shared_packages
from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.sandbox.service import ServiceSpec, service_command
from orchestrator.environments.servers.local import LocalSpec
from orchestrator.environments.servers.process import REPOSITORY
from orchestrator.environments.tasks_file import write_tasks
from orchestrator.environments.tools.tasks import (
    MAX_CALLS,
    ToolSource,
    ToolTask,
    only_passes_on,
)

APP = "/app"
"""Where the server's own modules are in the sandbox, and nothing else of this project."""
_MODULES = ("orchestrator/environments/tools", "orchestrator/environments/tasks_file.py")
_SERVER = "orchestrator.environments.tools.server"


class ToolsKind(ForeignActions):
    """See the module's text. Agents act on it as on any server of tools."""

    capacity = 32
    resets_by_key = True
    summary = "Tools that agents call: small Python functions, or an MCP server."
    source_fields: Sequence[Field] = (
        Field(
            "functions",
            "Python functions",
            "python",
            help="Typed, with docstrings. `state` is the episode's; "
            "`grade(state, answer, task)` gives the reward.",
        ),
        Field(
            "server",
            "MCP server",
            "json",
            help='Instead: {"command": ["python", "server.py"], "files": {"server.py": "…"}} '
            'or {"url": "https://…/mcp"}.',
        ),
        Field("grade", "Grader", "python", is_secret=True, help="grade(state, answer, task)."),
        Field("answer_schema", "Form of the answer", "json", help="JSON schema of submit."),
        Field("offered", "Tools offered", "text_list", help="One a line; empty: all."),
        Field("tool_timeout_s", "Seconds for a call", "number", default=30),
    )
    task_fields: Sequence[Field] = (
        Field("state", "State at the start", "json", help="What functions find in `state`."),
        Field("answer", "Answer", "json", is_secret=True, help="Expected of submit."),
        Field("tolerance", "Tolerance", "number", help="Greatest difference of numbers."),
        Field("expected_state", "State at the end", "json", is_secret=True),
        Field("data", "Data for the grader", "json", is_secret=True),
        Field("max_calls", "Calls at most", "integer", default=MAX_CALLS),
    )

    def check_source(self, source: Mapping[str, Any]) -> None:
        ToolSource.from_json(source)

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        ToolTask.from_json(spec)

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> LocalSpec:
        """Writes source and tasks below `data / name`, which only this user can enter."""
        checked = ToolSource.from_json(source)
        tasks = [ToolTask.from_json(spec, has_grade=checked.has_grade) for spec in specs]
        if not tasks:
            raise ValueError("tasks: a tools environment needs at least one")
        folder = data / name
        tasks_path = write_tasks([task.as_json() for task in tasks], folder)
        source_path = _written(dict(source), folder)
        for path in (tasks_path, source_path):
            # The sandbox's user reads them; the folder around them lets nobody else in.
            path.chmod(0o644)
        capacity = resources.slots or self.capacity
        arguments = ("--capacity", str(capacity))
        probe = {"task": tasks[0].key}
        if only_passes_on(source):
            # A relay of ours alone: nothing in it is the author's.
            command: tuple[str, ...] = (
                *(sys.executable, "-m", _SERVER, "--uds", "{socket}", *arguments),
                *("--tasks", str(tasks_path), "--source", str(source_path)),
            )
            return LocalSpec(
                name=name,
                command=command,
                capacity=capacity,
                probe=probe,
                max_servers=resources.max_servers,
            )
        spec = _service(checked, resources, tasks_path, source_path, arguments)
        return LocalSpec(
            name=name,
            command=service_command(
                spec,
                spec_path=folder / f"service-{_digest(spec.as_json())}.json",
                decisions=folder / "decisions.jsonl",
            ),
            capacity=capacity,
            probe=probe,
            max_servers=resources.max_servers,
        )

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        if isinstance(prompt := observation.get("prompt"), str):
            return [{"kind": "context", "text": prompt}]
        segments = [tool_segment(observation)]
        if isinstance(note := observation.get("note"), str):
            segments.append({"kind": "warning", "text": f"\n({note})"})
        return segments


def _service(
    source: ToolSource,
    resources: Resources,
    tasks_path: Path,
    source_path: Path,
    arguments: tuple[str, ...],
) -> ServiceSpec:
    try:
        shared = shared_packages()
    except SourceError as exc:
        raise ServerStartError(str(exc)) from exc
    python = os.path.realpath(sys.executable)
    own = [(str(REPOSITORY / path), f"{APP}/{path}") for path in _MODULES]
    inside = ("/tasks.jsonl", "/source.json")
    files = list(zip((str(tasks_path), str(source_path)), inside, strict=True))
    return ServiceSpec(
        command=(
            *(python, "-m", _SERVER, "--fd", "{fd}", *arguments),
            *("--tasks", inside[0], "--source", inside[1]),
        ),
        readable=(*((path, path) for path in (*interpreter_paths(), *shared)), *own, *files),
        folder=APP,
        env={
            "PATH": f"{os.path.dirname(python)}:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join([APP, *shared]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONNOUSERSITE": "1",
            "LC_ALL": "C.UTF-8",
        },
        resources=replace(resources, network=_network(source, resources.network)),
    )


def _network(source: ToolSource, network: Network) -> Network:
    """With the MCP server's own host, where calls go by address."""
    if not source.url or network.mode == "open":
        return network
    parts = urlsplit(source.url)
    if parts.scheme != "https" or parts.port not in (None, 443):
        raise ValueError(
            f"server.url: with a grader the server runs in the sandbox, from which only https on "
            f"port 443 is reached, not {parts.scheme}://{parts.netloc}; set resources.network.mode "
            "to open, or grade by answer"
        )
    hosts = dict.fromkeys((*network.allowed_hosts, str(parts.hostname)))
    return Network("allow-list", tuple(hosts))


def _written(source: dict[str, Any], folder: Path) -> Path:
    """The source as a file that appears whole or not at all; the same source, the same file."""
    path = folder / f"source-{_digest(source)}.json"
    if not path.exists():
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(source, file, ensure_ascii=False)
        partial.replace(path)
    return path.resolve()


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
