"""The seal of the test split, kept against plays by hand.

Whoever has played a test task could build a harness for it, so nobody may: neither by choosing the
task nor by typing its reset parameters. A task whose reset says nothing and fixes no seed is not
told apart from any other episode of its environment, so there is nothing to seal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.tryouts.errors import TryoutRefused

REASON = (
    "{key} is a sealed test task: whoever has played it could build a harness for it, so nobody "
    "plays test tasks by hand. Try a train task, or copy this one into the train split."
)


def refuse_sealed_task(task: Task) -> None:
    if task.split == Split.TEST:
        raise TryoutRefused(REASON.format(key=task.key))


def refuse_sealed_reset(
    version: EnvironmentVersion, params: Mapping[str, Any], *, task: Task | None
) -> None:
    """`TryoutRefused` if these parameters start a task of the test split.

    `task`: the one that is played. What its own reset says already cannot be what is sealed.
    """
    own = task.reset if task else {}
    tasks = Task.objects.filter(version=version, split=Split.TEST)
    for key, reset, seeds in tasks.values_list("key", "reset", "seeds").iterator():
        if not _says(params, reset):
            continue
        if params.get("seed") in seeds if seeds else not _says(own, reset):
            raise TryoutRefused(REASON.format(key=key))


def _says(params: Mapping[str, Any], reset: Mapping[str, Any]) -> bool:
    """Whether all of a task's reset is among the parameters."""
    return all(name in params and params[name] == value for name, value in reset.items())
