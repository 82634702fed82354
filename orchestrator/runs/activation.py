"""How often agents load the skills of a harness, and how rollouts with and without it do.

The difference is what was seen, not what the skill did: agents load a skill where they think that
it helps, and those tasks may be the harder ones. Only a certificate compares like with like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from optimizer.harness import SKILL_FILE
from optimizer.models import HarnessVersion
from optimizer.statistics import wilson_interval
from orchestrator.events.models import Event
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, Run

LOADED = "skill.loaded"
MOST = 5_000
"""Rollouts that are looked at, the newest first: a page is not to wait for more."""
PASSED = 0.5
"""Score from which a rollout counts as passed, as in `queries.Tally`."""


@dataclass(frozen=True)
class PassRate:
    passed: int
    scored: int
    """At least one; rollouts without a score are in neither."""

    @property
    def rate(self) -> float:
        return self.passed / self.scored

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson interval, 95 %."""
        return wilson_interval(self.passed, self.scored)


@dataclass(frozen=True)
class Activation:
    """Of one skill: loaded in n of m rollouts that have ended, `MOST` of them."""

    skill: str
    loaded: int
    rollouts: int
    passed_with: PassRate | None
    """Of rollouts that loaded it; None where none has a score."""
    passed_without: PassRate | None

    @property
    def share(self) -> float | None:
        return self.loaded / self.rollouts if self.rollouts else None


def activations(
    *, harness: HarnessVersion, run_ids: Iterable[int] | None = None
) -> list[Activation]:
    """Of each skill in the order of their names, over all runs or these; two queries at most."""
    rollouts = Rollout.objects.filter(harness=harness)
    if run_ids is not None:
        rollouts = rollouts.filter(run_id__in=list(run_ids))
    return _counted([harness], rollouts)


def activations_in_run(run: Run, harnesses: Sequence[HarnessVersion]) -> list[Activation]:
    """Of each skill that any of the run's harnesses has, over the rollouts that had it."""
    return _counted(harnesses, Rollout.objects.filter(run=run))


def loads_of(rollout_ids: Iterable[int]) -> dict[int, list[str]]:
    """Names of the skills that each rollout loaded, in order, each once; one query."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    told = Event.objects.filter(kind=LOADED, stream__rollout__pk__in=list(rollout_ids))
    rows = told.order_by("stream_id", "seq").values_list("stream__rollout__pk", "payload__name")
    for pk, name in rows:
        found[pk][name] = None
    return {pk: list(names) for pk, names in found.items()}


def skills_of(harness: HarnessVersion) -> list[str]:
    """Names alone: nothing of its texts is read."""
    matches = (SKILL_FILE.fullmatch(path) for path in harness.components)
    return sorted(match[1] for match in matches if match)


@dataclass(frozen=True)
class _Ended:
    harness_id: int
    score: float | None


def _counted(harnesses: Sequence[HarnessVersion], rollouts: QuerySet[Rollout]) -> list[Activation]:
    owners: dict[str, set[int]] = defaultdict(set)
    for version in harnesses:
        for skill in skills_of(version):
            owners[skill].add(version.pk)
    if not owners:
        return []
    ended = rollouts.exclude(state__in=(*OPEN_ROLLOUT_STATES, RolloutState.CANCELLED))
    ended = ended.order_by("-pk")[:MOST]
    by_stream = {
        stream_id: _Ended(harness_id, score)
        for stream_id, harness_id, score in ended.values_list("stream_id", "harness_id", "score")
    }
    loaded: dict[str, set[int]] = defaultdict(set)
    told = Event.objects.filter(kind=LOADED, stream_id__in=ended.values("stream_id"))
    for stream_id, name in told.values_list("stream_id", "payload__name"):
        loaded[name].add(stream_id)
    return [
        _activation(
            skill,
            loaded[skill],
            {pk: one.score for pk, one in by_stream.items() if one.harness_id in owners[skill]},
        )
        for skill in sorted(owners)
    ]


def _activation(skill: str, loaded: set[int], scores: Mapping[int, float | None]) -> Activation:
    # What ended between the two queries counts the next time.
    seen = loaded & scores.keys()
    return Activation(
        skill=skill,
        loaded=len(seen),
        rollouts=len(scores),
        passed_with=_rate([scores[pk] for pk in seen]),
        passed_without=_rate([score for pk, score in scores.items() if pk not in seen]),
    )


def _rate(scores: Sequence[float | None]) -> PassRate | None:
    known = [score for score in scores if score is not None]
    if not known:
        return None
    return PassRate(sum(score >= PASSED for score in known), len(known))
