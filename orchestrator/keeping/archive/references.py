"""Keys of rows that stand inside JSON, where no foreign key tells of them.

A path goes through objects by name; `[]` is every item of a list.

The manifest of a training job names its climb by key too; it stays as it is, since its hash is of
these very bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Replace = Callable[[str, int], int | None]
"""Model's name and key to the key elsewhere; None where the row is not there."""


@dataclass(frozen=True)
class Reference:
    path: tuple[str, ...]
    to: str


def _to(model: str, *paths: str) -> tuple[Reference, ...]:
    return tuple(Reference(tuple(path.split(".")), model) for path in paths)


_CALLS = _to("judging.JudgeCall", "calls.[].call", "steps.[].calls.[].call")

FIELDS: dict[str, dict[str, tuple[Reference, ...]]] = {
    "optimizer.Search": {"outcome": _to("optimizer.HarnessVersion", "winner", "shipped")},
    "optimizer.Comparison": {"details": _to("runs.Run", "runs.[]")},
    "climbs.Rung": {
        "certificate": _to("runs.Run", "baseline_run", "test_run")
        + _to("optimizer.Comparison", "comparison")
    },
    "grading.HackingAlarm": {"detail": _to("runs.Rollout", "rollouts.[]")},
    "grading.Regrade": {
        "selection": _to("runs.Rollout", "rollouts.[]", "chosen.rollout_ids.[]")
        + _to("runs.Run", "run", "chosen.run_id")
        + _to("environments.Environment", "chosen.environment_id")
        + _to("rubrics.Rubric", "chosen.rubric_id")
    },
    "runs.VerdictRecord": {"detail": _CALLS},
    "grading.RegradedScore": {
        "verdicts": _to(
            "judging.JudgeCall", "[].detail.calls.[].call", "[].detail.steps.[].calls.[].call"
        )
    },
}
"""By model and field."""

EVENTS: dict[str, tuple[Reference, ...]] = {
    "rollout": _to("runs.Rollout", "id"),
    "run": _to("runs.Run", "id"),
    "proposal": _to("optimizer.Proposal", "id"),
    "alarm": _to("grading.HackingAlarm", "id"),
    "train.alarm": _to("training.TrainingAlarm", "id"),
    "train.evaluated": _to("runs.Run", "run"),
}
"""By the kind of the event, in its payload."""

NUMBERS: dict[tuple[str, str], str] = {
    ("environments.CurriculumRollout", "rollout_id"): "runs.Rollout",
    ("review.ReviewEntry", "item_number"): "review.ReviewItem",
}
"""Plain number fields that hold keys."""

_NAMES = (
    (re.compile(r"^(climb-)(\d+)(-.*)$", re.DOTALL), "climbs.Climb"),
    (re.compile(r"^(training-)(\d+)($)"), "training.TrainingJob"),
)
_ELSEWHERE = re.compile(r"^imported-\d+-")


def name_out(name: str, replace: Replace) -> str:
    """Of a curriculum, as it stands in an archive: its owner's key is in it."""
    name = _ELSEWHERE.sub("", name)
    for pattern, to in _NAMES:
        if found := pattern.match(name):
            return f"{found[1]}{replace(to, int(found[2])) or 0}{found[3]}"
    return name


def name_in(name: str, replace: Replace, project_id: int) -> str:
    """The name in this installation, where every name is there once."""
    for pattern, to in _NAMES:
        if (found := pattern.match(name)) and (key := replace(to, int(found[2][:18]))):
            return f"{found[1]}{key}{found[3]}"
    return f"imported-{project_id}-{name}"


def replaced(value: Any, references: tuple[Reference, ...], replace: Replace) -> Any:
    """A copy of `value` with the keys at the references replaced; others stay as they are."""
    for reference in references:
        value = _at(value, reference.path, reference.to, replace)
    return value


def _at(value: Any, path: tuple[str, ...], to: str, replace: Replace) -> Any:
    if not path:
        return replace(to, value) if isinstance(value, int) and value is not True else value
    step, rest = path[0], path[1:]
    if step == "[]":
        if not isinstance(value, list):
            return value
        return [_at(item, rest, to, replace) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _at(item, rest, to, replace) if name == step else item for name, item in value.items()
    }


def names() -> Iterator[str]:
    """All models that are referred to."""
    for fields in FIELDS.values():
        for references in fields.values():
            yield from (reference.to for reference in references)
    for references in EVENTS.values():
        yield from (reference.to for reference in references)
    yield from NUMBERS.values()
