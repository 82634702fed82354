"""A job handed over to prime-rl: its tasks as resets, where its environment is reached, and what
became of it.

prime-rl runs on machines of its own, so a job knows of its handover what the command tells: the
file that was written, the start and end of a launch that named the job, the adapter that came back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.environments.models import EnvironmentKind, Split
from orchestrator.environments.serving import reset_params
from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent, append
from orchestrator.runs.seeds import derive_seed
from orchestrator.trainings.errors import TrainingRefused
from training.backends.primerl import Export, Place, Source, export
from training.errors import ConfigurationError
from training.manifest import Manifest
from training.models import TrainingJob


def handed_over(
    job: TrainingJob, *, environment_url: str = "", model: str = "", **place: Any
) -> Export:
    """The job's configuration for prime-rl; `place` are further fields of `Place`.

    An environment by address is reached where it is here; any other has to be served at
    `environment_url`. Raises TrainingRefused.
    """
    version = job.environment_version
    if version is None:
        raise TrainingRefused("This job belongs to a climb that names no environment of its own.")
    address = environment_url or _address(version.environment.kind, version.source)
    if not address:
        raise TrainingRefused(
            f"{version.environment.name} runs inside Switchback, where prime-rl cannot reach it. "
            "Serve it as an OpenEnv server and name its address."
        )
    manifest = Manifest.from_json(job.manifest)
    tasks = version.tasks.filter(split=Split.TRAIN).order_by("key")
    resets = tuple(
        reset_params(task, replicate=0, seed=derive_seed(manifest.seed, "handover", task.key, 0))
        for task in tasks
    )
    name = model or manifest.model.name
    try:
        return export(
            manifest,
            Place(
                model=name, sources=(Source(version.environment.slug, address, resets),), **place
            ),
        )
    except ConfigurationError as error:
        raise TrainingRefused(str(error)) from error


def record(job: TrainingJob, state: str, **about: Any) -> None:
    """Keeps a turn of its handover: `exported`, `started`, `ended`, `failed` or `imported`."""
    payload = {"state": state, **about}
    append(stream_id=job.stream_id, items=[NewEvent("train.handed_over", payload)])


def handovers_of(job: TrainingJob) -> list[dict[str, Any]]:
    """Its turns, oldest first, each with `at`. One query."""
    told = Event.objects.filter(stream_id=job.stream_id, kind="train.handed_over").order_by("seq")
    return [{**event.payload, "at": event.at} for event in told]


def _address(kind: str, source: Mapping[str, Any]) -> str:
    return str(source.get("base_url", "")) if kind == EnvironmentKind.URL else ""
