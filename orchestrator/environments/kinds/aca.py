"""An OpenEnv server in an Azure Container Apps sandbox.

Needs the optional packages `openenv[aca]` where the workers run, and the operator's identity in
their environment (`AZURE_…`). Egress is denied but for the hosts that the resources allow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.kinds.foreign import ForeignActions
from orchestrator.environments.packages.capacity import capacity_of, check_env, slots_asked
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.aca import AcaSpec

PLACE = ("subscription_id", "resource_group", "sandbox_group", "region")
NAMES = frozenset({"image", "command", "folder", "env", "reset", *PLACE})
FOUND = frozenset({"capacity", "seed", "is_random", "reset_ms"})
"""What registering adds."""
_IMAGE = re.compile(r"(disk|disk-id):\s*[\w.-]+(/[\w.-]+)*")


class AcaKind(ForeignActions):
    """See the module's text."""

    summary = "A sandbox of Azure Container Apps; egress denied unless allowed."
    source_fields: Sequence[Field] = (
        Field("image", "Disk", is_required=True, help="disk:NAME or disk-id:ID; no image name."),
        Field("command", "Command", "shell", help="Starts the server; empty if the disk does."),
        Field("folder", "Folder", help="Where the command runs."),
        Field("env", "Variables", "json", help='Of the sandbox, {"NAME": "value"}.'),
        Field("subscription_id", "Subscription", help="Empty: AZURE_SUBSCRIPTION_ID."),
        Field("resource_group", "Resource group", help="Empty: AZURE_RESOURCE_GROUP."),
        Field("sandbox_group", "Sandbox group", help="Empty: AZURE_SANDBOX_GROUP."),
        Field("region", "Region", help="Empty: AZURE_REGION."),
        Field("reset", "Reset", "json", help="Parameters of the reset that proves it works."),
    )
    task_fields: Sequence[Field] = ()
    resets_by_key = False

    def check_source(self, source: Mapping[str, Any]) -> None:
        if unknown := sorted(set(source) - NAMES - FOUND):
            raise SourceError(f"{unknown[0]}: unknown; known are {', '.join(sorted(NAMES))}")
        image = str(source.get("image") or "")
        if not _IMAGE.fullmatch(image):
            raise SourceError(
                f"image: {image!r:.80} is no disk: disk:NAME or disk-id:ID. Azure makes a disk of "
                "a container image in a step of its own"
            )
        for name in ("command", "folder", *PLACE):
            if not isinstance(source.get(name) or "", str):
                raise SourceError(f"{name}: a text was expected")
        check_env(source)
        if not isinstance(source.get("reset") or {}, Mapping):
            raise SourceError("reset: an object of parameters was expected")

    def check_resources(self, source: Mapping[str, Any], resources: Resources) -> None:
        """`SourceError` for an open network: with a sandbox of the cloud that is never given."""
        if resources.network.mode == "open":
            raise SourceError(
                "resources: egress of an Azure sandbox is always denied; allow the hosts it needs "
                "by name (network allow-list)"
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
    ) -> AcaSpec:
        try:
            self.check_resources(source, resources)
        except SourceError as exc:
            raise ServerStartError(str(exc)) from exc
        asked = slots_asked(resources)
        return AcaSpec(
            name=name,
            image=str(source["image"]),
            capacity=capacity_of(source, asked),
            cpu=f"{round(resources.cpus * 1000)}m",
            memory=f"{resources.memory_mb}Mi",
            allowed_hosts=resources.network.allowed_hosts,
            command=str(source.get("command") or ""),
            folder=str(source.get("folder") or ""),
            env={
                "MAX_CONCURRENT_ENVS": str(asked),
                **{str(k): str(v) for k, v in (source.get("env") or {}).items()},
            },
            place={key: str(source[key]) for key in PLACE if source.get(key)},
            max_servers=resources.max_servers,
            is_single_use=resources.is_single_use,
            probe={"seed": 7, **(source.get("reset") or {})},
        )
