"""What a grid is run on: generated terminal tasks, one harness, and transcripts of an author.

Tasks come from fixed seeds, so every cell of every machine has the same ones. The author's
transcripts are of tasks of a seed of their own and of a policy that is none of ours: the surprise
at them is off-policy, as in the paper's figure 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optimizer.harness import Demonstration, Harness, Sampling, load_folder
from orchestrator.environments.kinds.terminal import TerminalKind
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.environments.terminal.tasks import generate
from orchestrator.reproduction.cells import MAX_TOKENS, Size
from orchestrator.runs.seeds import derive_seed

TASK_SEED, POOL_SEED = 7, 8


@dataclass(frozen=True)
class World:
    """Tasks by split, the harness that all cells share, and the pool's tasks."""

    harness: Harness
    train: tuple[TaskSpec, ...]
    select: tuple[TaskSpec, ...]
    test: tuple[TaskSpec, ...]
    pool: tuple[TaskSpec, ...]

    def messages(self, task: TaskSpec) -> list[dict[str, str]]:
        """What the model is told of a task."""
        return self.harness.messages(task.prompt, key=task.key)

    def tasks_of_step(self, seed: int, step: int, groups: int) -> list[TaskSpec]:
        """Shuffled passes over all of them; the same for every lambda."""
        first = (step - 1) * groups
        return [self._task_at(seed, number) for number in range(first, first + groups)]

    def _task_at(self, seed: int, number: int) -> TaskSpec:
        turn, place = divmod(number, len(self.train))
        order = sorted(self.train, key=lambda task: derive_seed("order", seed, turn, task.key))
        return order[place]


def make_world(size: Size, *, examples: Path) -> World:
    """Demonstrations are the first train tasks, which are not trained on then."""
    counts = {
        "train": size.demonstrations + size.train,
        "select": size.select,
        "test": size.test,
    }
    tasks = generate(TASK_SEED, counts)
    train = [task for task in tasks if task.split == "train"]
    shown, trained = train[: size.demonstrations], train[size.demonstrations :]
    seed_harness = load_folder(examples / "terminal-files" / "harness")
    harness = replace(
        seed_harness,
        demonstrations=tuple(_demonstration(task) for task in shown),
        sampling=Sampling(temperature=0.0, max_tokens=MAX_TOKENS, stop=("\n",)),
    )
    return World(
        harness=harness,
        train=tuple(trained),
        select=tuple(task for task in tasks if task.split == "select"),
        test=tuple(task for task in tasks if task.split == "test"),
        pool=tuple(generate(POOL_SEED, {"train": size.pool})),
    )


def _demonstration(task: TaskSpec) -> Demonstration:
    messages = ({"role": "user", "content": task.prompt}, *task.reference)
    return Demonstration(task.key, messages, source=task.key)


def server_of(world: World, folder: Path) -> LocalServer:
    """The environment's server, not started; holds the answers of all tasks."""
    specs: list[dict[str, Any]] = [task.as_json() for task in _all_tasks(world)]
    spec = TerminalKind().server(
        name="reproduction", source={}, resources=Resources(), specs=specs, data=folder
    )
    return spec.make(folder / "environment")


def _all_tasks(world: World) -> Sequence[TaskSpec]:
    return (*world.train, *world.select, *world.test)
