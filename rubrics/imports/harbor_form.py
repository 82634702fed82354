"""What Harbor's Reward Kit writes into a judge file, as far as this product knows it.

Source: the documentation and the published package harbor-rewardkit 0.2 (format facts only). A
folder of tests holds judge files, `NAME.toml` with `[judge]`, `[[criterion]]` and `[scoring]`, and
may hold `reward.toml` with `[[reward]]`, which joins them. Checks in Python stand beside them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm

REWARD_FILE = "reward.toml"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MEAN, ALL, THRESHOLD, REQUIRED = "weighted-mean", "all-pass", "threshold", "required-pass"
AGENTS = frozenset({"claude-code", "codex", "fx", "jev"})
"""Judges that are no model endpoint: command-line agents, and a language model of its own kind."""

JUDGE_FIELDS: Mapping[str, str] = {
    "model": "the model of an agent; a judge here is a model of the project",
    "version": "no agents judge here",
    "files": "a judge here sees the task, the steps and the answer, no files",
    "mode": "each criterion is asked by itself here",
    "timeout": "a criterion has 120 s here",
    "reasoning_effort": "is a setting of the model here",
    "isolated": "no agents judge here",
    "cwd": "no agents judge here",
    "reference": "the reference is the task's expected answer here; add expected to sees",
    "atif-trajectory": "a judge here sees the steps already",
    "atif_trajectory": "a judge here sees the steps already",
    "mcp_servers": "a judge here has no tools",
    "prompt_template": "the frame around a question is the product's own here",
    "guard": "what agents wrote is always framed as data here",
}
CRITERION_FIELDS: Mapping[str, str] = {
    "files": "a judge here sees the task, the steps and the answer, no files",
    "optional": "every criterion counts here",
    "annotations": "there is no place for it here",
}


def normal(aggregation: str) -> str:
    """Both spellings exist."""
    return aggregation.replace("_", "-")


def slug(text: str) -> str:
    """How Reward Kit names a criterion that has no name."""
    return re.sub(r"[^a-z0-9]+", "_", text[:40].lower()).strip("_")


def free_id(wanted: str, taken: set[str]) -> str:
    """An id of ours that is near `wanted` and not taken."""
    base = re.sub(r"[^a-z0-9_-]+", "_", wanted.lower()).lstrip("_-")[:56] or "criterion"
    number, found = 1, base
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    return found


def whole_weights(weights: Sequence[float]) -> list[int] | None:
    """The same proportions in whole numbers from 1 to 10; None where there are none such."""
    if all(w == int(w) and 1 <= w <= 10 for w in weights):
        return [int(w) for w in weights]
    # By their decimal digits: 0.1 is a tenth here.
    exact = [Fraction(repr(float(weight))) for weight in weights]
    common = lcm(*(part.denominator for part in exact))
    wholes = [int(part * common) for part in exact]
    shared = gcd(*wholes)
    reduced = [whole // shared for whole in wholes]
    return reduced if max(reduced) <= 10 else None


def nearest_weights(weights: Sequence[float]) -> list[int]:
    most = max(weights)
    return [max(1, round(10 * weight / most)) for weight in weights]
