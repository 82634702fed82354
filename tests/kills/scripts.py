"""What the model and the judge say, each after a moment."""

from __future__ import annotations

import json
import random
import re
import threading

from tests.climbs.ladder import FAIL, follows_demonstrations
from tests.doubles.model_server import Asked
from tests.runs.drive import act

STEP_S = 0.12
"""Of the model and of the judge: long enough that a fault finds rollouts under way."""


class Script:
    """Looks once, with words of its own, then does as `follows_demonstrations`."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> str:
        threading.Event().wait(STEP_S)
        final = follows_demonstrations(asked)
        if final == FAIL and len(asked.messages) <= 3:
            with self._lock:
                word = self._draw.randrange(10**9)
            return act(text=f"look {word}")
        return final


class JudgeScript:
    """Half marks, slowly; says when it is asked."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()

    def __call__(self, asked: Asked) -> str:
        self.is_asked.set()
        threading.Event().wait(3 * STEP_S)
        key = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
        score = sum(map(ord, asked.last[-40:])) % 2
        told = {"key": key.group(1) if key else "", "reason": "seen", "score": score}
        return json.dumps(told)
