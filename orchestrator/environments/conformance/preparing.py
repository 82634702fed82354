"""From a stored version to what graders may look at: which tasks, what is secret, which server.

A check has servers of its own: filling all slots and dropping lines must not disturb a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from orchestrator.environments.conformance.subject import (
    MAX_STEPS,
    Exercise,
    Secret,
    Subject,
    texts_of,
)
from orchestrator.environments.kinds.base import Kind
from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.spec import Server, ServerSpec
from orchestrator.environments.serving import (
    data_folder,
    episode_settings,
    kind_of,
    reset_params,
    server_spec,
)

TASKS = 5
"""How many tasks are looked at."""
RESET_LIMIT_S = 60.0
STEP_LIMIT_S = 20.0
SLOT_WAIT_S = 5.0


@contextmanager
def served(version: EnvironmentVersion) -> Iterator[tuple[ServerSpec, Server]]:
    """A server for the time of the block; ready if it is ours.

    Raises:
        ServerStartError, ValueError: it cannot be started; says why.
    """
    spec = server_spec(version)
    server = spec.make(data_folder() / spec.name / f"check-{spec.digest}")
    try:
        base_url = server.start_container()
        if spec.is_ours:  # whether somebody else's answers, the first grader finds out at once
            server.wait_for_ready(base_url)
        yield spec, server
    finally:
        server.close()


def subject_of(version: EnvironmentVersion, spec: ServerSpec, server: Server) -> Subject:
    """`ValueError` for limits of the version or a task that cannot be."""
    kind = kind_of(version)
    tasks = tasks_to_check(version)
    found = [_exercise(version, kind, task) for task in tasks]
    slots = Resources.from_json(version.resources).slots
    return Subject(
        base_url=server.base_url,
        kind=kind,
        exercises=tuple(found)
        or (Exercise(key="(no task)", prompt="", settings=_settings(version, {})),),
        capacity=slots or (spec.capacity if spec.is_ours else None),
        is_shared=not spec.is_ours,
    )


def tasks_to_check(version: EnvironmentVersion) -> Sequence[Task]:
    """Of the train split, with transcripts first; sealed ones only where there are no others."""
    for split in (Split.TRAIN, Split.SELECT, Split.TEST):
        tasks = list(Task.objects.filter(version=version, split=split).order_by("key")[:200])
        if tasks:
            return sorted(tasks, key=lambda task: task.reference is None)[:TASKS]
    return ()


def _exercise(version: EnvironmentVersion, kind: Kind, task: Task) -> Exercise:
    reset = reset_params(task, replicate=0, seed=0)
    reset.pop("seed", None)  # graders choose it
    return Exercise(
        key=task.key,
        prompt=task.prompt,
        reset=reset,
        secrets=tuple(secrets_of(kind, task.spec)),
        reference=tuple(replies_of(task.reference or ())),
        settings=_settings(version, task.limits),
    )


def _settings(version: EnvironmentVersion, limits: Mapping[str, Any]) -> Any:
    """The version's own limits, with waits that fit a check."""
    chosen = episode_settings(version, max_steps=MAX_STEPS, limits=limits)
    return replace(
        chosen,
        reset_timeout_s=min(chosen.reset_timeout_s, RESET_LIMIT_S),
        step_timeout_s=min(chosen.step_timeout_s, STEP_LIMIT_S),
        slot_wait_s=min(chosen.slot_wait_s, SLOT_WAIT_S),
    )


def secrets_of(kind: Kind, spec: Mapping[str, Any]) -> Iterator[Secret]:
    """The texts of the fields that the kind marks as solving a task."""
    for field in kind.task_fields:
        if field.is_secret:
            for text in texts_of(spec.get(field.name)):
                yield Secret(f"the task's {field.name}", text)


def replies_of(reference: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the author's agent said, a function call in the form that interfaces read."""
    for message in reference:
        if message.get("role") != "assistant":
            continue
        calls = message.get("tool_calls") or ()
        for call in calls:
            function = call.get("function", call)
            arguments = function.get("arguments", "{}")
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments)
            yield f"{function.get('name', '')} {arguments}"
        if not calls and (content := message.get("content")):
            yield str(content)
