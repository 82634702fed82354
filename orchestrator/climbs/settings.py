"""Settings of a climb, stored with it as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from orchestrator.trainings.settings import TrainSettings, check_sampler

__all__ = ["ClimbSettings", "SearchSettings", "TrainSettings", "WatchSettings"]


@dataclass(frozen=True)
class SearchSettings:
    """Size of the harness search; every figure is a number of rollouts, tasks or pairs."""

    demonstrations: int = 21
    """Edits that add a demonstration, spread over the task families."""
    own_demonstrations: int = 6
    """Edits that add an attempt of the agent's own that succeeded."""
    evidence_tasks: int = 14
    """Train tasks on which the seed harness is watched before anything is proposed."""
    evidence_sampler: str = "sequential"
    """Which these are; `signal` goes by what earlier training in the environment has found out."""
    max_demonstrations: int = 21
    """In one bundle; they stand in the prefix that all rollouts share."""
    blocks: int = 16
    """Bundles in the factorial screen."""
    wave_blocks: int = 4
    tasks_per_block: int = 6
    race_candidates: int = 3
    race_tasks: int = 16
    certify_batch_pairs: int = 12
    certify_max_pairs: int = 60
    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_sampler("evidence_sampler", self.evidence_sampler)


@dataclass(frozen=True)
class WatchSettings:
    """When a climb is warned of, or paused for, a rubric that is being gamed."""

    held_out_rubric: int | None = None
    """Id of a version of another rubric, on which nobody climbs; without it no gap can be seen."""
    held_out_rollouts: int = 16
    """Of each run, so many are graded by it."""
    warn: float = 0.05
    """Points of score by which the gap between the rubrics, or between criteria, has grown."""
    pause: float = 0.10
    length: float = 0.5
    """Growth of answers or rollouts, as a share; warns only."""
    format: float = 0.2
    """Rise of a form's share of the answers; warns only."""


@dataclass(frozen=True)
class ClimbSettings:
    search: SearchSettings = field(default_factory=SearchSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    max_harness_rungs: int = 1
    """Searches at most; the rule may ask for another one where it promises more than weights."""
    test_replicates: int = 1
    concurrency: int = 32
    """Rollouts in flight."""
    max_rollouts: int = 2_000
    """Cap of the agent's budget for the whole climb."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ClimbSettings:
        """Raises ValueError naming an unknown field."""
        known = {f.name for f in fields(cls)}
        unknown = set(data) - known
        if unknown:
            raise ValueError(f"Unknown climb settings: {', '.join(sorted(unknown))}.")
        values = dict(data)
        values["search"] = _part(SearchSettings, data.get("search", {}))
        values["train"] = _part(TrainSettings, data.get("train", {}))
        values["watch"] = _part(WatchSettings, data.get("watch", {}))
        return cls(**values)


def _part(kind: type[Any], data: Mapping[str, Any]) -> Any:
    known = {f.name for f in fields(kind)}
    unknown = set(data) - known
    if unknown:
        raise ValueError(f"Unknown {kind.__name__}: {', '.join(sorted(unknown))}.")
    return kind(**data)
