"""An OpenEnv environment that fails on request; the target `fault_env` of the fault vectors.

Served by `python -m uvicorn fault_env:app`. Variables: MAX_CONCURRENT_ENVS (8), FAULT_FACTORY=1,
FAULT_IGNORE_SEED=1, FAULT_WORKDIR=folder. Behaviour as the vectors describe it.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import BaseModel

NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
WORKDIR = os.getenv("FAULT_WORKDIR")


class FaultAction(Action):  # type: ignore[misc]
    op: str = "noop"
    secs: float = 0.0
    size: int = 0
    text: str = ""
    blob: str = ""
    path: str = ""
    reward: Any = None
    done: bool = False


class FaultObservation(Observation):  # type: ignore[misc]
    text: str = ""
    n: int = 0
    was_reset: bool = False
    seed: int | None = None
    puzzle: int = 0
    extra: Any = None


class Strict(BaseModel):
    value: int


class FaultEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        if os.getenv("FAULT_FACTORY"):
            raise RuntimeError("the factory refuses")
        self._state, self._n, self._was_reset = State(), 0, False
        self._seed: int | None = None
        self._puzzle = 0
        if WORKDIR:
            Path(WORKDIR).mkdir(parents=True, exist_ok=True)
            verifier = Path(WORKDIR, "verifier.json")
            if not verifier.exists():
                verifier.write_text(json.dumps({"expected": "hello"}))

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        fault: str = "",
        secs: float = 0.0,
    ) -> FaultObservation:
        if fault == "raise":
            raise ValueError("the reset refuses")
        if fault == "sleep":
            time.sleep(secs)  # noqa: TID251 (the fault)
        rng = random.Random(None if os.getenv("FAULT_IGNORE_SEED") else seed)
        self._n, self._was_reset, self._seed = 0, True, seed
        self._puzzle = rng.randrange(10**6)
        self._state = State(episode_id=episode_id, step_count=0, secret=str(self._puzzle * 7))
        return self._observe("task", None, fault == "done")

    def step(
        self, action: FaultAction, timeout_s: float | None = None, **kwargs: Any
    ) -> FaultObservation:
        self._n += 1
        self._state.step_count += 1
        reward, text = action.reward, action.text or "x" * action.size
        if isinstance(reward, str):
            reward = NOT_FINITE[reward]
        match action.op:
            case "sleep":
                time.sleep(action.secs)  # noqa: TID251 (the fault)
            case "raise":
                raise ValueError("boom")
            case "raise_empty":
                raise ValueError
            case "raise_validation":
                Strict(value="not a number")  # type: ignore[arg-type]
            case "exit":
                os._exit(3)
            case "unserialisable":
                return self._observe("x", 1.0, True, extra=object())
            case "write":
                Path(str(WORKDIR), action.path).write_text(action.blob)
            case "evaluate":
                expected = json.loads(Path(str(WORKDIR), "verifier.json").read_text())["expected"]
                answer = Path(str(WORKDIR), "answer.txt")
                ok = answer.exists() and answer.read_text() == expected
                return self._observe("evaluated", 1.0 if ok else 0.0, True)
        return self._observe(text, reward, action.done)

    def _observe(self, text: str, reward: Any, done: bool, extra: Any = None) -> FaultObservation:
        return FaultObservation(
            text=text,
            n=self._n,
            was_reset=self._was_reset,
            seed=self._seed,
            puzzle=self._puzzle,
            reward=reward,
            done=done,
            extra=extra,
        )

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    FaultEnvironment,
    FaultAction,
    FaultObservation,
    env_name="fault_env",
    max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "8")),
)
