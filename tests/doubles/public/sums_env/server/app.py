"""Sums of reasoning_gym behind the interface of OpenEnv."""

from __future__ import annotations

import os
from typing import Any

import reasoning_gym  # type: ignore[import-not-found]
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Answer(Action):  # type: ignore[misc]
    answer: str


class Question(Observation):  # type: ignore[misc]
    question: str = ""


class Sums(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Question:
        self._state = State(episode_id=episode_id)
        self._set = reasoning_gym.create_dataset(
            "chain_sum", seed=seed, size=1, min_terms=2, max_terms=2, min_digits=1, max_digits=1
        )
        return Question(question=self._set[0]["question"])

    def step(self, action: Answer, timeout_s: float | None = None, **_: Any) -> Question:
        score = self._set.score_answer(action.answer, self._set[0])
        return Question(reward=float(score), done=True)

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    Sums,
    Answer,
    Question,
    env_name="sums_env",
    max_concurrent_envs=int(os.getenv("MAX_CONCURRENT_ENVS", "4")),
)
