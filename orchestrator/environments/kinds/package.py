"""An OpenEnv environment as code: a folder of this machine, or a package from an index.

What runs is never the folder itself: registering copies and installs it (`packages.install`), and
the frozen source names that installation. Its server runs in the sandbox, on the interpreter of its
own virtual environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.kinds.foreign import ForeignActions
from orchestrator.environments.packages.capacity import capacity_of, check_env, slots_asked
from orchestrator.environments.packages.install import installed_source
from orchestrator.environments.packages.installation import (
    interpreter_paths,
    is_installation,
    shared_packages,
)
from orchestrator.environments.packages.manifest import is_app
from orchestrator.environments.packages.requirements import parse_requirements
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox.service import ServiceSpec, service_command
from orchestrator.environments.servers.local import LocalSpec

SERVE = Path(__file__).parents[1] / "packages" / "serve.py"
NAMES = frozenset(
    {"path", "requirement", "app", "env", "requirements", "data", "wheels", "reset",
     "raise_capacity"}
)  # fmt: skip
FOUND = frozenset(
    {"installation", "installed", "notes", "declared", "capacity", "seed", "is_random",
     "reset_ms", "isolation"}
)  # fmt: skip
"""What registering adds."""


class PackageKind(ForeignActions):
    """See the module's text."""

    summary = "Python code with an openenv.yaml: installed apart and run in the sandbox."
    source_fields: Sequence[Field] = (
        Field("path", "Folder", help="On the server, in OpenEnv's layout: openenv.yaml, server/."),
        Field("requirement", "Package", help="Instead of a folder: what pip installs, name==1.0."),
        Field("app", "App", help="module:attribute. Empty: what openenv.yaml says."),
        Field("env", "Variables", "json", help='Of its process, {"NAME": "value"}.'),
        Field("requirements", "Further requirements", "text_list", help="For pip, one a line."),
        Field("data", "Data", help="A folder; each server gets a copy, named {data} in variables."),
        Field("wheels", "Wheels", "text_list", help="Which its reset may install without network."),
        Field("reset", "Reset", "json", help="Parameters of the reset that proves it works."),
        Field(
            "raise_capacity",
            "More episodes at a time than its code says",
            "flag",
            default=False,
            help="Its author has not promised it; registering checks that episodes stay apart.",
        ),
    )
    task_fields: Sequence[Field] = ()
    resets_by_key = False

    def check_source(self, source: Mapping[str, Any]) -> None:
        if unknown := sorted(set(source) - NAMES - FOUND):
            raise SourceError(f"{unknown[0]}: unknown; known are {', '.join(sorted(NAMES))}")
        path, requirement = source.get("path"), source.get("requirement")
        if bool(path) == bool(requirement):
            raise SourceError("path: give a folder, or else a requirement (one of the two)")
        app = str(source.get("app") or "")
        if app and not is_app(app):
            raise SourceError(f"app: {app!r:.80} is not module:attribute, like server.app:app")
        if requirement:
            parse_requirements([str(requirement)], "requirement")
            if not app:
                raise SourceError("app: needed with a requirement, like echo_env.server.app:app")
        elif not Path(str(path)).expanduser().is_absolute():
            raise SourceError("path: give the whole path, from /")
        for name in ("requirements", "wheels"):
            texts = source.get(name) or []
            if not isinstance(texts, list | tuple):
                raise SourceError(f"{name}: a list of requirements was expected")
            parse_requirements([str(text) for text in texts], name)
        check_env(source)
        if (name := str(source.get("installation") or "")) and not is_installation(name):
            raise SourceError(f"installation: {name!r:.80} is none; registering gives it")
        if not isinstance(source.get("reset") or {}, Mapping):
            raise SourceError("reset: an object of parameters was expected")

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        """Foreign code: any parameters of its reset may be right."""

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> LocalSpec:
        try:
            installed, apps = installed_source(source, data)
            shared = shared_packages()
        except SourceError as exc:
            raise ServerStartError(str(exc)) from exc
        asked = slots_asked(resources)
        is_raised = bool(source.get("raise_capacity"))
        config = {
            "apps": apps,
            "capacity": asked if is_raised else None,
            "data": str(installed.data) if source.get("data") else None,
            "env": {**{str(k): str(v) for k, v in (source.get("env") or {}).items()}},
        }
        folder = installed.folder.resolve()
        spec = ServiceSpec(
            command=(*(str(folder / "venv" / "bin" / "python"), str(SERVE), "--fd", "{fd}"),),
            readable=tuple(
                (path, path) for path in (*interpreter_paths(), *shared, str(folder), str(SERVE))
            ),
            folder=apps[0]["root"],
            env={
                "SERVE_CONFIG": json.dumps(config, sort_keys=True),
                "PATH": f"{folder}/venv/bin:/usr/bin:/bin",
                "VIRTUAL_ENV": f"{folder}/venv",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
                "PYTHONNOUSERSITE": "1",
                # Environments that call pip at reset find what they need without network.
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": f"{folder}/wheels",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "MAX_CONCURRENT_ENVS": str(asked),
                "LC_ALL": "C.UTF-8",
            },
            resources=resources,
        )
        own = data / name
        return LocalSpec(
            name=name,
            command=service_command(
                spec, spec_path=own / "service.json", decisions=own / "decisions.jsonl"
            ),
            capacity=asked if is_raised else capacity_of(source, asked),
            max_servers=resources.max_servers,
            is_single_use=resources.is_single_use,
            # With a seed, as runs do it: some refuse other parameters without one.
            probe={"seed": 7, **(source.get("reset") or {})},
        )
