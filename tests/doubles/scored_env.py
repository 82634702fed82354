"""An OpenEnv environment that scores with a rubric of the library and reports each score by name.

`guess` is taken as what the rubric's parts give: JSON of {name: score}. An episode is one step.
"""

from __future__ import annotations

import json
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_app


class ScoredAction(Action):  # type: ignore[misc]
    scores: str = "{}"


class ScoredObservation(Observation):  # type: ignore[misc]
    text: str = ""


class ScoredEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> ScoredObservation:
        return ScoredObservation(text="go")

    def step(
        self, action: ScoredAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ScoredObservation:
        seen = ScoredObservation(text="done", reward=0.25, done=True)
        seen.metadata = {"rubric_scores": json.loads(action.scores), "secret": "never shown"}
        return seen

    @property
    def state(self) -> State:
        return State()


app = create_app(
    ScoredEnvironment, ScoredAction, ScoredObservation, env_name="scored", max_concurrent_envs=4
)
