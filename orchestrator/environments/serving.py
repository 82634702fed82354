"""From a stored version to a server and an episode on it: the one place that knows how.

Runs, checks and tryouts all go through here, so that they meet the same environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from django.conf import settings

from orchestrator.environments.kinds import KINDS, Kind
from orchestrator.environments.models import EnvironmentVersion, Task
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.spec import ServerSpec
from orchestrator.environments.session import EpisodeSettings

SERVER_DATA = "env"
"""Folder below the data folder where servers keep what they need."""


def data_folder() -> Path:
    return Path(settings.DATA_DIR) / SERVER_DATA


def kind_of(version: EnvironmentVersion) -> Kind:
    return KINDS[version.environment.kind]


def server_spec(version: EnvironmentVersion) -> ServerSpec:
    """How to run, or reach, the version's server.

    Raises:
        ServerStartError: what the server needs cannot be prepared.
        ValueError: the version's source or resources are not usable; names the field.
    """
    return kind_of(version).server(
        name=f"v{version.pk}",
        source=version.source,
        resources=Resources.from_json(version.resources),
        specs=[
            {**spec, "key": key, "prompt": prompt}
            for key, prompt, spec in Task.objects.filter(version=version).values_list(
                "key", "prompt", "spec"
            )
        ],
        data=data_folder(),
    )


def reset_params(task: Task, *, replicate: int, seed: int) -> dict[str, Any]:
    """Parameters of the reset that starts `task`. A seed that its author fixed goes first."""
    fixed = task.seeds[replicate] if replicate < len(task.seeds) else seed
    return {"seed": fixed, **task.reset}


def episode_settings(
    version: EnvironmentVersion, *, max_steps: int, limits: Mapping[str, Any] | None = None
) -> EpisodeSettings:
    """Limits of an episode: the harness's steps, then the version's word, then the task's.

    `ValueError` that names the field for an unknown or impossible one.
    """
    chosen = {"max_steps": max_steps, **version.settings, **(limits or {})}
    known = {field.name for field in fields(EpisodeSettings)}
    if unknown := set(chosen) - known:
        raise ValueError(f"unknown limit {sorted(unknown)[0]}; known: {', '.join(sorted(known))}")
    if chosen.get("reward_range") is not None:
        chosen["reward_range"] = tuple(chosen["reward_range"])
    chosen["verifier_files"] = tuple(chosen.get("verifier_files", ()))
    return EpisodeSettings(**chosen)
