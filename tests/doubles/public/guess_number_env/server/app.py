"""GuessTheNumber of textarena behind the interface of OpenEnv."""

from __future__ import annotations

import os
from typing import Any

import textarena  # type: ignore[import-not-found]
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Guess(Action):  # type: ignore[misc]
    message: str


class Shown(Observation):  # type: ignore[misc]
    text: str = ""


class GuessNumber(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Shown:
        self._state = State(episode_id=episode_id)
        self._game = textarena.make("GuessTheNumber-v0")
        self._game.reset(num_players=1, seed=seed)
        return Shown(text=str(self._game.get_observation()[1]))

    def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Shown:
        done, _info = self._game.step(action.message)
        if done:
            rewards, _game = self._game.close()
            return Shown(reward=float(rewards[0]), done=True)
        return Shown(text=str(self._game.get_observation()[1]))

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    GuessNumber,
    Guess,
    Shown,
    env_name="guess_number_env",
    max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "4")),
)
