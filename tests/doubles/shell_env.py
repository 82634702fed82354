"""An OpenEnv environment with a shell and every fault of one: all episodes share the folder that
holds the verifier. Commands see programs and that folder, nothing else of the machine.

Served by `python -m uvicorn shell_env:app`; SHELL_WORKDIR is the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_app

WORK = Path(os.environ["SHELL_WORKDIR"])
BOX = [
    *("bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
]


class ShellAction(Action):  # type: ignore[misc]
    command: str = ""
    answer: str = ""


class ShellObservation(Observation):  # type: ignore[misc]
    output: str = ""


class ShellEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ShellObservation:
        (WORK / "verifier.json").write_text(json.dumps({"expected": "forty-two"}))
        self._state = State(episode_id=episode_id, step_count=0)
        return ShellObservation(output="What is six times seven?")

    def step(
        self, action: ShellAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ShellObservation:
        self._state.step_count += 1
        if action.answer:
            expected = json.loads((WORK / "verifier.json").read_text())["expected"]
            return ShellObservation(reward=float(action.answer == expected), done=True)
        here = ["--bind", str(WORK), str(WORK), "--chdir", str(WORK)]
        done = subprocess.run(
            [*BOX, *here, "bash", "-c", action.command],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        return ShellObservation(output=(done.stdout + done.stderr)[:4000])

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    ShellEnvironment,
    ShellAction,
    ShellObservation,
    env_name="shell_env",
    max_concurrent_envs=8,
)
