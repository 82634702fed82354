"""An OpenEnv server in a container image, run by Docker with limits.

The image's own command serves on port 8000, unless the source says otherwise. The frozen source
names the image by its digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.kinds.foreign import ForeignActions
from orchestrator.environments.packages.capacity import capacity_of, check_env, slots_asked
from orchestrator.environments.packages.image import REFERENCE
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.docker import PORT, DockerSpec

NAMES = frozenset({"image", "command", "env", "user", "port", "reset"})
FOUND = frozenset({"pinned", "image_id", "capacity", "seed", "is_random", "reset_ms"})
"""What registering adds."""


class DockerKind(ForeignActions):
    """See the module's text."""

    summary = "A container image, run by Docker with limits."
    source_fields: Sequence[Field] = (
        Field("image", "Image", is_required=True, help="name:tag; pulled if it is not here."),
        Field("command", "Command", "text_list", help="Empty: the image's own. One word a line."),
        Field("env", "Variables", "json", help='Of its process, {"NAME": "value"}.'),
        Field("user", "User", help="Empty: nobody (65534:65534). Never root.", default=""),
        Field("port", "Port", "integer", default=PORT, help="On which its server listens."),
        Field("reset", "Reset", "json", help="Parameters of the reset that proves it works."),
    )
    task_fields: Sequence[Field] = ()
    resets_by_key = False

    def check_source(self, source: Mapping[str, Any]) -> None:
        if unknown := sorted(set(source) - NAMES - FOUND):
            raise SourceError(f"{unknown[0]}: unknown; known are {', '.join(sorted(NAMES))}")
        for name in ("image", "pinned"):
            image = str(source.get(name) or "")
            if not REFERENCE.fullmatch(image) and (image or name == "image"):
                raise SourceError(f"{name}: {image!r:.80} is not the name of an image")
        command = source.get("command") or []
        if not isinstance(command, list | tuple) or not all(isinstance(c, str) for c in command):
            raise SourceError("command: a list of words was expected")
        user = str(source.get("user") or "")
        if user.partition(":")[0] in ("0", "root"):
            raise SourceError("user: root is not given to a container; name another user")
        port = source.get("port", PORT)
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise SourceError("port: a number between 1 and 65535 was expected")
        check_env(source)
        for name, value in (source.get("env") or {}).items():
            if "\n" in str(value):
                raise SourceError(f"env: {name}: Docker takes no value of several lines")
        if not isinstance(source.get("reset") or {}, Mapping):
            raise SourceError("reset: an object of parameters was expected")

    def check_resources(self, source: Mapping[str, Any], resources: Resources) -> None:
        """`SourceError` for what Docker cannot enforce."""
        if resources.network.mode == "allow-list":
            raise SourceError(
                "resources: Docker cannot allow names one by one: choose network none or open, or "
                "register the environment as a package, whose sandbox can"
            )

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
    ) -> DockerSpec:
        try:
            self.check_resources(source, resources)
        except SourceError as exc:
            raise ServerStartError(str(exc)) from exc
        asked = slots_asked(resources)
        return DockerSpec(
            name=name,
            image=str(source.get("pinned") or source["image"]),
            capacity=capacity_of(source, asked),
            memory_mb=resources.memory_mb,
            cpus=resources.cpus,
            processes=resources.processes,
            disk_mb=resources.disk_mb,
            network=resources.network.mode,
            command=tuple(source.get("command") or ()),
            env={
                "MAX_CONCURRENT_ENVS": str(asked),
                "ENABLE_WEB_INTERFACE": "false",
                **{str(k): str(v) for k, v in (source.get("env") or {}).items()},
            },
            user=str(source.get("user") or "65534:65534"),
            port=int(source.get("port") or PORT),
            max_servers=resources.max_servers,
            is_single_use=resources.is_single_use,
            probe={"seed": 7, **(source.get("reset") or {})},
        )
