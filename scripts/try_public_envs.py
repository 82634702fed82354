"""Runs public environments from their own source, unchanged, and prints what came of it.

    python scripts/try_public_envs.py /path/to/OpenEnv        (make try-public-envs OPENENV=…)

The argument is a checkout of github.com/huggingface/OpenEnv. Each environment is installed into a
virtual environment of its own (from PyPI), served in the sandbox without network, and played by a
scripted agent that knows how to solve it. The table says for each what the episode gave. Exit code
1 if one did not do what it should. Nothing of the checkout is copied into this repository.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")

from rich.console import Console  # noqa: E402 - the path above comes first
from rich.table import Table  # noqa: E402

from orchestrator.environments.episode import EpisodeEvent, View, run_episode  # noqa: E402
from orchestrator.environments.errors import ServerStartError, SourceError  # noqa: E402
from orchestrator.environments.kinds.package import PackageKind  # noqa: E402
from orchestrator.environments.packages.capacity import measure_capacity  # noqa: E402
from orchestrator.environments.packages.install import prepare_package  # noqa: E402
from orchestrator.environments.probe import probe  # noqa: E402
from orchestrator.environments.resources import Resources  # noqa: E402
from orchestrator.environments.session import EpisodeSettings  # noqa: E402

SETTINGS = EpisodeSettings(reset_timeout_s=120, step_timeout_s=60, max_steps=60)
START_TIMEOUT_S = 120.0
TASK = {
    "instruction.md": "Create hello.txt in the task's folder with the word hello.\n",
    "task.toml": "[verifier]\ntimeout_sec = 60.0\n",
    "tests/test_outputs.py": (
        "from pathlib import Path\n\n\ndef test_it():\n"
        "    made = Path(__file__).parents[1] / 'hello.txt'\n"
        "    assert made.read_text().strip() == 'hello'\n"
    ),
}
"""A task of our own for tbench2: its public tasks need containers."""

Agent = Callable[[View], Mapping[str, Any] | None]
"""From what it sees to its next action; None: it stops."""


@dataclass(frozen=True)
class Trial:
    """An environment, an agent that solves it, and what that should give."""

    folder: str
    agent: Callable[[], Agent]
    reward: float | None
    """Of the step that ends the episode; None: this environment never gives one."""
    reset: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[str, ...] = ()
    has_tasks: bool = False
    shows: str = ""
    """Text that the observations must hold, where there is no reward."""


@dataclass
class Outcome:
    """A row of the table."""

    name: str
    installed_s: float = 0.0
    started_s: float = 0.0
    slots: int = 0
    seed: str = ""
    steps: int = 0
    reward: float | None = None
    problem: str = ""


def moves(*actions: Mapping[str, Any]) -> Callable[[], Agent]:
    """An agent that plays these and stops."""

    def make() -> Agent:
        left = list(actions)
        return lambda view: left.pop(0) if left else None

    return make


def says(message: str) -> dict[str, Any]:
    return {
        "type": "call_tool",
        "tool_name": "echo_message",
        "arguments": {"message": message},
    }


def calculator() -> Agent:
    """Answers `5 - 3 + 2` of chain_sum."""

    def act(view: View) -> Mapping[str, Any]:
        terms = re.findall(r"[-+]?\s*\d+", str(view.observation["question"]).split(":")[-1])
        return {"answer": str(sum(int(term.replace(" ", "")) for term in terms))}

    return act


def guesser() -> Agent:
    """Halves the range by what the game answers."""
    low, high, guess = 1, 20, 0

    def act(view: View) -> Mapping[str, Any]:
        nonlocal low, high, guess
        # All that was said is shown each time, rules with both words first: the last one counts.
        said = str(view.observation["messages"][-1:]).lower()
        if guess and said.rfind("higher") > said.rfind("lower"):
            low = guess + 1
        elif guess:
            high = guess - 1
        guess = (low + high) // 2
        return {"message": f"[{guess}]"}

    return act


UP, DOWN, LEFT, RIGHT = range(4)
MAZE_PATH = (*[RIGHT] * 4, DOWN, DOWN, RIGHT, RIGHT, DOWN, RIGHT, *[DOWN] * 4)
"""The way through its fixed maze."""

TRIALS = (
    Trial("echo_env", moves(says("hello"), says("again")), None, shows="again"),
    Trial("grid_world_env", moves(*[{"action": a} for a in ["DOWN", "RIGHT"] * 4]), 1.0),
    Trial("maze_env", moves(*[{"action": action} for action in MAZE_PATH]), 10.0),
    Trial("connect4_env", moves(*[{"column": n % 2} for n in range(7)]), 1.0),
    Trial(
        "reasoning_gym_env",
        calculator,
        1.0,
        reset={
            "dataset_name": "chain_sum",
            "dataset_config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
            "size": 1,
        },
    ),
    Trial(
        "textarena_env",
        guesser,
        1.0,
        env={"TEXTARENA_ENV_ID": "GuessTheNumber-v0", "TEXTARENA_DOWNLOAD_NLTK": "0"},
    ),
    Trial(
        "tbench2_env",
        moves(
            {"action_type": "exec", "command": "echo hello > hello.txt"},
            {"action_type": "evaluate"},
        ),
        1.0,
        reset={"task_id": "hello"},
        env={"TB2_MODE": "local", "TB2_TASKS_DIR": "{data}"},
        wheels=("pytest",),
        has_tasks=True,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("openenv", type=Path, help="checkout of the OpenEnv repository")
    parser.add_argument("--only", help="one environment, like maze_env")
    parser.add_argument("--data", type=Path, help="keep installations here; else they are removed")
    options = parser.parse_args()
    if not (options.openenv / "envs").is_dir():
        parser.error(f"{options.openenv} has no folder envs: not a checkout of OpenEnv")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="switchback-public-") as folder:
        data = options.data or Path(folder, "data")
        tasks = Path(folder, "tasks")
        for name, content in TASK.items():
            path = tasks / "hello" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        outcomes = []
        for trial in TRIALS:
            if options.only in (None, trial.folder):
                with console.status(trial.folder) as status:
                    outcomes.append(
                        attempt(trial, options.openenv / "envs", data, tasks, status.update)
                    )
    print_table(console, outcomes)
    return 1 if any(outcome.problem for outcome in outcomes) else 0


def attempt(
    trial: Trial, envs: Path, data: Path, tasks: Path, report: Callable[[str], None]
) -> Outcome:
    """Install, serve, play. What goes wrong is the outcome."""
    outcome = Outcome(trial.folder)
    report(trial.folder)
    source: dict[str, Any] = {
        "path": str((envs / trial.folder).resolve()),
        "env": dict(trial.env),
        "wheels": list(trial.wheels),
        "reset": dict(trial.reset),
        "data": str(tasks) if trial.has_tasks else "",
    }
    kind = PackageKind()
    try:
        kind.check_source(source)
        began_s = time.monotonic()
        prepared = prepare_package(source, data=data, report=report, check=lambda: None)
        outcome.installed_s = time.monotonic() - began_s
        spec = kind.server(
            name=trial.folder, source=prepared.source, resources=Resources(), specs=[], data=data
        )
        server = spec.make(data / trial.folder)
        began_s = time.monotonic()
        report("starting")
        try:
            server.wait_for_ready(server.start_container(), START_TIMEOUT_S)
            outcome.started_s = time.monotonic() - began_s
            asyncio.run(play(trial, server.base_url, outcome, report))
        finally:
            server.close()
    except (SourceError, ServerStartError) as exc:
        outcome.problem = str(exc)
    return outcome


async def play(
    trial: Trial, base_url: str, outcome: Outcome, report: Callable[[str], None]
) -> None:
    report("playing")
    outcome.slots = await measure_capacity(base_url, 8)
    outcome.seed = (await probe(base_url, reset=trial.reset, settings=SETTINGS)).seed.value
    seen: list[str] = []
    rewards: list[float | None] = []

    async def note(event: EpisodeEvent) -> None:
        if event.kind == "step":
            seen.append(str(event.payload))
            rewards.append(event.payload["reward"])

    reset = {"seed": 3, **trial.reset}
    result = await run_episode(base_url, trial.agent(), SETTINGS, reset=reset, hook=note)
    outcome.steps, outcome.reward = result.n_steps, result.reward
    if trial.reward is None:
        if not any(trial.shows in text for text in seen):
            outcome.problem = f"it did not show {trial.shows!r}: {result.message}"
        elif any(reward is not None for reward in rewards):
            outcome.problem = "it gave a reward, and should give none"
    elif result.reward != trial.reward:
        outcome.problem = f"reward {result.reward}, expected {trial.reward}. {result.message}"


def print_table(console: Console, outcomes: list[Outcome]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("environment", "installed", "ready", "slots", "seed", "steps", "reward", ""):
        is_text = heading in ("environment", "")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=bool(heading))
    for row in outcomes:
        table.add_row(
            row.name,
            f"{row.installed_s:.1f} s",
            f"{row.started_s:.1f} s",
            str(row.slots or ""),
            row.seed,
            str(row.steps),
            "none" if row.reward is None else f"{row.reward:g}",
            row.problem or "as it should",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
