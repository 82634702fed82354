"""Quality filters for the environment term; the policy term is never touched.

Training on observations that follow broken actions teaches the policy its own failure modes (ECHO,
table 4), so rollouts below a threshold lose their environment targets and nothing else.
Fractions are exact: in floating point 4 * 0.2 / 0.8 truncates to 0 instead of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from training.types import Row, TurnCounts


@dataclass(frozen=True, slots=True)
class FilterSpec:
    """Thresholds, 0 to 1; None switches a filter off."""

    min_valid_tool_call_share: float | None = None
    min_parse_clean_share: float | None = None
    min_correct_share: float | None = None
    correct_reward: float = 0.5
    """A rollout counts as correct from this reward on."""
    volatile_spans: bool = False
    """Take times, process ids, hashes and the like out of the environment term
    (`training.volatile`)."""
    volatile_patterns: tuple[str, ...] = ()
    """Further regular expressions for such spans."""

    @property
    def is_active(self) -> bool:
        """Whether any rollout is filtered at all; tokens are another matter."""
        return (
            self.min_valid_tool_call_share is not None
            or self.min_parse_clean_share is not None
            or self.min_correct_share is not None
        )


def turn_quality(counts: TurnCounts) -> tuple[float, float]:
    """Shares of turns with a valid tool call, and of clean turns; 0 for a rollout without turns."""
    if counts.turns <= 0:
        return 0.0, 0.0
    valid = Fraction(counts.turns - counts.parse_errors, counts.turns)
    return float(valid), float(Fraction(counts.clean_turns, counts.turns))


def incorrect_kept(*, theta: float, correct: int, incorrect: int) -> int:
    """How many incorrect rollouts of one prompt stay so that correct ones make up `theta`.

    floor(correct * (1 - theta) / theta), at most those available; 0 when theta is 1 or more or
    nothing is correct.
    """
    share = Fraction(str(theta))
    if share >= 1 or correct <= 0:
        return 0
    if share <= 0:
        return incorrect
    return min(incorrect, int(correct * (1 - share) / share))


def apply_filters(rows: Sequence[Row], spec: FilterSpec) -> list[Row]:
    """Rows with `trains_env` cleared where a filter says so; order and everything else unchanged.

    The share of correct rollouts works per group, in the order of the rows: all correct rollouts
    stay and the first so-many incorrect ones. A rollout without turn counts passes the turn filters
    only if none is active.
    """
    if not spec.is_active:
        return list(rows)
    dropped = {row.rollout for row in rows if not _passes_turn_filters(row, spec)}
    if spec.min_correct_share is not None:
        dropped |= _surplus_incorrect(rows, spec)
    return [replace(row, trains_env=False) if row.rollout in dropped else row for row in rows]


def _passes_turn_filters(row: Row, spec: FilterSpec) -> bool:
    wants_valid = spec.min_valid_tool_call_share
    wants_clean = spec.min_parse_clean_share
    if row.quality is None:
        return wants_valid is None and wants_clean is None
    if row.quality.turns <= 0:
        return False
    valid, clean = turn_quality(row.quality)
    return (wants_valid is None or valid >= wants_valid) and (
        wants_clean is None or clean >= wants_clean
    )


def _surplus_incorrect(rows: Sequence[Row], spec: FilterSpec) -> set[str]:
    assert spec.min_correct_share is not None
    groups: dict[str, dict[str, bool]] = {}
    for row in rows:
        is_correct = row.reward is not None and row.reward >= spec.correct_reward
        groups.setdefault(row.group, {}).setdefault(row.rollout, is_correct)
    surplus: set[str] = set()
    for rollouts in groups.values():
        wrong = [rollout for rollout, is_correct in rollouts.items() if not is_correct]
        kept = incorrect_kept(
            theta=spec.min_correct_share,
            correct=len(rollouts) - len(wrong),
            incorrect=len(wrong),
        )
        surplus.update(wrong[kept:])
    return surplus
