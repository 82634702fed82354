"""What changes environments: new ones, new versions of them, connecting a server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from django.utils.text import slugify

from orchestrator.environments.errors import EnvironmentProbeError
from orchestrator.environments.models import (
    Environment,
    EnvironmentKind,
    EnvironmentVersion,
    Task,
)
from orchestrator.environments.probe import probe
from orchestrator.environments.session import EpisodeSettings
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User

PROBE_SETTINGS = EpisodeSettings(
    connect_timeout_s=5.0, reset_timeout_s=20.0, step_timeout_s=20.0, slot_wait_s=5.0
)
"""A person waits for the form: an address that does not answer is told within seconds."""


@dataclass(frozen=True)
class NewTask:
    key: str
    split: str
    prompt: str
    family: str = ""
    reset: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    reference: list[dict[str, str]] | None = None
    difficulty: float | None = None
    limits: dict[str, Any] | None = None
    seeds: list[int] | None = None


def create_version(
    *,
    environment: Environment,
    source: dict[str, Any],
    tasks: Sequence[NewTask],
    settings: dict[str, Any] | None = None,
    resources: dict[str, Any] | None = None,
    description: str = "",
    note: str = "",
    created_by: User | None = None,
) -> EnvironmentVersion:
    """A new version with its tasks; the existing one where a version has exactly this content."""
    digest = _fingerprint(
        {
            "kind": environment.kind,
            "source": source,
            "settings": settings or {},
            "resources": resources or {},
            "description": description,
            "tasks": [asdict(task) for task in tasks],
        }
    )
    with transaction.atomic():
        same = environment.versions.filter(sha256=digest).order_by("-number").first()
        if same is not None:
            return same
        newest = environment.versions.order_by("-number").first()
        version = EnvironmentVersion.objects.create(
            environment=environment,
            number=newest.number + 1 if newest else 1,
            source=source,
            settings=settings or {},
            resources=resources or {},
            description=description,
            note=note,
            created_by=created_by,
            sha256=digest,
        )
        Task.objects.bulk_create(
            Task(
                version=version,
                key=task.key,
                split=task.split,
                family=task.family,
                difficulty=task.difficulty,
                prompt=task.prompt,
                reset=task.reset or {},
                spec=task.spec or {},
                limits=task.limits or {},
                seeds=task.seeds or [],
                reference=task.reference,
            )
            for task in tasks
        )
    return version


def connect_environment(
    *, actor: User, project: Project, name: str, base_url: str
) -> EnvironmentVersion:
    """Registers a running OpenEnv server after real episodes have started on it.

    Raises:
        EnvironmentProbeError: the address is not one, or no episode starts; says what to do.
    """
    require(actor, project, Role.EDITOR)
    try:
        result = asyncio.run(probe(base_url, settings=PROBE_SETTINGS))
    except ValueError as exc:
        raise EnvironmentProbeError(str(exc)) from exc
    if not result.is_usable:
        raise EnvironmentProbeError(
            f"{result.message.removesuffix(' No score.')} Check that the OpenEnv server at "
            f"{base_url} is running and that this machine may reach it."
        )
    slug = slugify(name)[:60] or "environment"
    with transaction.atomic():
        if Environment.objects.filter(project=project, slug=slug).exists():
            raise EnvironmentProbeError(f"The project already has an environment named {name}.")
        environment = Environment.objects.create(
            project=project, slug=slug, name=name, kind=EnvironmentKind.URL
        )
        return create_version(
            environment=environment,
            source={
                "base_url": base_url,
                "seed": result.seed.value,
                "is_random": result.is_random,
                "reset_ms": result.reset_ms,
            },
            tasks=[
                NewTask(key="default", split="test", prompt="Act in the environment.", reset={})
            ],
        )


def _fingerprint(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
