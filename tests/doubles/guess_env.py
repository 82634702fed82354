"""An OpenEnv environment for the graders of `Check environment`: sound, and bad on request.

An episode is one word to be guessed. `reset(task=…, fault=…)` names the word's task and what is
wrong with this episode; without a fault everything is as it should be. Served by
`python -m uvicorn guess_env:app`; MAX_CONCURRENT_ENVS (8) is its number of slots.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any, ClassVar

from openenv.core.env_server import Action, Environment, Observation, State, create_app

WORDS = {"a": "orchid-garden", "b": "basalt-column"}
NUMBERS = {"a": 4, "b": 7}


class GuessAction(Action):  # type: ignore[misc]
    guess: str = ""
    peek: bool = False


class GuessObservation(Observation):  # type: ignore[misc]
    text: str = ""
    clue: int = 0


class GuessEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    said: ClassVar[list[str]] = []
    """What every episode of the fault `shared` said: all of them see it."""

    def __init__(self) -> None:
        super().__init__()
        self._fault, self._word, self._n = "", WORDS["a"], 0
        self._state = State()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str = "a",
        fault: str = "",
        secs: float = 0.0,
    ) -> GuessObservation:
        if fault == "slow":
            time.sleep(secs)  # noqa: TID251 (the fault)
        self._fault, self._word, self._n = fault, WORDS[task], 0
        self._rng = random.Random(None if fault == "random" else seed)
        hidden: dict[str, Any] = {}
        if fault == "state":
            hidden = {"board": {"word": self._word}}
        elif fault == "number_in_state":
            self._word = str(NUMBERS[task])
            hidden = {"game": {"n": NUMBERS[task]}}
        elif fault == "named":
            hidden = {"solution_hash": "9f1c"}
        self._state = State(episode_id=episode_id, step_count=0, **hidden)
        observation = self._see("guess the word", None, False)
        if fault == "metadata":
            observation.metadata = {"debug": {"word": self._word}}
        elif fault == "observation":
            observation.text = f"guess the word (it is {self._word})"
        elif fault == "reset_reward":
            observation.reward = 0.5
        return observation

    def step(
        self, action: GuessAction, timeout_s: float | None = None, **kwargs: Any
    ) -> GuessObservation:
        self._n += 1
        if self._fault != "no_count":
            self._state.step_count += 1
        reward, text = (1.0 if action.guess == self._word else 0.0), "no" * (self._n % 2)
        match self._fault:
            case "pays_noop":
                reward = 1.0
            case "pays_some":
                reward = max(reward, 0.2)
            case "out_of_range":
                reward = 5.0
            case "nan":
                reward = float("nan")
            case "never_right":
                reward = 0.5
            case "flaky":
                reward = random.random()
            case "shared":
                self.said.append(action.guess)
                text = " ".join(self.said[-20:])
            case "hang":
                time.sleep(5)  # noqa: TID251 (the fault)
            case "traceback":
                raise RuntimeError('Traceback (most recent call last): File "/srv/env/x.py"')
        return self._see(text, reward, self._fault != "endless")

    def _see(self, text: str, reward: Any, done: bool) -> GuessObservation:
        clue = self._rng.randrange(10**6) if not self._n else 0
        return GuessObservation(text=text, clue=clue, reward=reward, done=done)

    @property
    def state(self) -> State:
        if self._fault == "no_state":
            raise RuntimeError("there is no state")
        return self._state


app = create_app(
    GuessEnvironment,
    GuessAction,
    GuessObservation,
    env_name="guess_env",
    max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "8")),
)
