"""From verdicts to one score: a single pure function.

Rules, in this order:

1. A verdict that is missing or pending makes the score pending.
2. A required criterion that errored makes the score errored: nothing is known about what the
   rubric insists on.
3. A required criterion that was decided and not passed makes the score 0.
4. The criteria of a group count as one unit, with the group's weight. What is applicable, decided
   and passed of a group is found by the same rules as for the rubric as a whole.
5. Not applicable leaves the denominator; nothing applicable at all makes the score not
   applicable.
6. `all_pass`: 0 as soon as one unit is not passed, whatever else is known; errored if the others
   cannot tell; else 1. `sequential`: in order, 0 at the first unit that is not passed, errored at
   the first that errored, else the value of the last.
7. `weighted_mean`: a unit that errored is left out and counted (a rollout may have an error and a
   valid score), as long as at least `min_coverage` of the applicable weight was decided and one
   unit that can earn something is among it. Below that the score is errored: a rest that happened
   to work must not stand for the whole. Otherwise it is (Σ w·v of the units − Σ w·v of the negative
   ones) / Σ w of the units that are not negative. Penalties end at 0 by definition: a rollout
   cannot be worse than worthless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rubrics.errors import VerdictInvalid
from rubrics.types import Aggregation, Criterion, Group, RubricSpec, Score, State, Verdict

Graded = tuple[Criterion, Verdict]


def is_passed(criterion: Criterion, verdict: Verdict) -> bool | None:
    """Whether the criterion is met; None where there is no value."""
    return None if verdict.value is None else reaches(criterion, verdict.value)


def reaches(criterion: Criterion, value: float) -> bool:
    """Whether a value (0 to 1) meets the criterion; a negative one is met below its threshold."""
    return value < criterion.threshold if criterion.negative else value >= criterion.threshold


def goodness(criterion: Criterion, value: float) -> float:
    """The value as something of which more is better, 0 to 1."""
    return 1.0 - value if criterion.negative else value


def is_rollout_passed(spec: RubricSpec, score: Score) -> bool | None:
    return None if score.value is None else score.value >= spec.pass_threshold


def aggregate(spec: RubricSpec, verdicts: Iterable[Verdict]) -> Score:
    """The score of one rollout; the order of `verdicts` is of no effect.

    Raises VerdictInvalid for two verdicts of one criterion or one of a criterion that the
    rubric does not have.
    """
    graded = _pair(spec, verdicts)
    counts = {state: sum(verdict.state is state for _, verdict in graded) for state in State}

    def score(
        state: State, value: float | None = None, reason: str = "", failed: Sequence[str] = ()
    ) -> Score:
        return Score(
            state=state,
            value=value,
            reason=reason,
            n_scored=counts[State.SCORED],
            n_errored=counts[State.ERRORED],
            n_not_applicable=counts[State.NOT_APPLICABLE],
            n_pending=counts[State.PENDING],
            failed_required=tuple(failed),
        )

    if counts[State.PENDING]:
        return score(State.PENDING)
    broken = [_named(c, v) for c, v in graded if c.required and v.state is State.ERRORED]
    if broken:
        return score(State.ERRORED, reason=f"required criterion errored: {'; '.join(broken)}")
    failed = [c.id for c, v in graded if c.required and is_passed(c, v) is False]
    if failed:
        return score(
            State.SCORED, 0.0, reason=f"required and not passed: {', '.join(failed)}", failed=failed
        )
    result = _combine(spec.aggregation, _units(spec, graded), spec.min_coverage)
    return score(result.state, result.value, result.reason)


# --- units: criteria, and groups of them ---------------------------------------------------------


@dataclass(frozen=True)
class _Unit:
    """What counts as one."""

    name: str
    weight: int
    negative: bool
    state: State
    value: float | Fraction | None
    passed: bool | None
    reason: str


@dataclass(frozen=True)
class _Result:
    state: State
    value: float | None = None
    reason: str = ""


def _units(spec: RubricSpec, graded: Sequence[Graded]) -> list[_Unit]:
    """In the rubric's order; a group stands where its first criterion stands."""
    groups = {group.id: group for group in spec.groups}
    units: list[_Unit] = []
    seen: set[str] = set()
    for criterion, verdict in graded:
        if not criterion.group:
            units.append(_unit_of(criterion, verdict))
        elif criterion.group not in seen:
            seen.add(criterion.group)
            members = [(c, v) for c, v in graded if c.group == criterion.group]
            units.append(_unit_of_group(groups[criterion.group], members, spec.min_coverage))
    return units


def _unit_of(criterion: Criterion, verdict: Verdict) -> _Unit:
    return _Unit(
        name=criterion.id,
        weight=criterion.weight,
        negative=criterion.negative,
        state=verdict.state,
        value=verdict.value,
        passed=is_passed(criterion, verdict),
        reason=verdict.reason,
    )


def _unit_of_group(group: Group, members: Sequence[Graded], min_coverage: float) -> _Unit:
    result = _combine(group.aggregation, [_unit_of(c, v) for c, v in members], min_coverage)
    return _Unit(
        name=group.id,
        weight=group.weight,
        negative=False,
        state=result.state,
        value=result.value,
        passed=None if result.value is None else result.value >= group.threshold,
        reason=result.reason,
    )


def _combine(aggregation: Aggregation, units: Sequence[_Unit], min_coverage: float) -> _Result:
    applicable = [unit for unit in units if unit.state is not State.NOT_APPLICABLE]
    if aggregation is Aggregation.ALL_PASS:
        return _all_pass(applicable)
    if aggregation is Aggregation.SEQUENTIAL:
        return _sequential(applicable)
    return _mean(applicable, min_coverage)


def _all_pass(applicable: Sequence[_Unit]) -> _Result:
    if not applicable:
        return _nothing_applies()
    failed = [unit.name for unit in applicable if unit.passed is False]
    if failed:
        return _Result(State.SCORED, 0.0, f"not passed: {', '.join(failed)}")
    if errors := _errors(applicable):
        return _Result(State.ERRORED, reason=f"whether all pass cannot be told: {errors}")
    return _Result(State.SCORED, 1.0)


def _sequential(applicable: Sequence[_Unit]) -> _Result:
    if not applicable:
        return _nothing_applies()
    for unit in applicable:
        if unit.state is State.ERRORED:
            return _Result(State.ERRORED, reason=f"{unit.name}: {unit.reason}")
        if unit.passed is False:
            return _Result(State.SCORED, 0.0, f"stopped at {unit.name}: not passed")
    last = applicable[-1]
    value = Fraction(last.value or 0)
    return _Result(State.SCORED, float(1 - value if last.negative else value))


def _mean(applicable: Sequence[_Unit], min_coverage: float) -> _Result:
    if not any(not unit.negative for unit in applicable):
        return _nothing_applies()
    decided = [unit for unit in applicable if unit.state is State.SCORED]
    coverage = _weight(decided) / _weight(applicable)
    if coverage < min_coverage or not any(not unit.negative for unit in decided):
        return _Result(
            State.ERRORED,
            reason=f"only {coverage:.0%} of the weight was decided: {_errors(applicable)}",
        )
    # Exact until the one rounding at the end, so neither the order of the criteria nor a common
    # factor of their weights can change a score.
    points = sum(
        (Fraction(u.value or 0) * (-u.weight if u.negative else u.weight) for u in decided),
        start=Fraction(0),
    )
    whole = _weight(unit for unit in decided if not unit.negative)
    return _Result(State.SCORED, float(max(Fraction(0), points / whole)))


def _nothing_applies() -> _Result:
    return _Result(State.NOT_APPLICABLE, reason="no criterion applies to this rollout")


def _weight(units: Iterable[_Unit]) -> int:
    return sum(unit.weight for unit in units)


def _errors(units: Iterable[_Unit]) -> str:
    return "; ".join(f"{u.name}: {u.reason}" for u in units if u.state is State.ERRORED)


def _named(criterion: Criterion, verdict: Verdict) -> str:
    return f"{criterion.id}: {verdict.reason}"


def _pair(spec: RubricSpec, verdicts: Iterable[Verdict]) -> list[Graded]:
    by_id: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.criterion in by_id:
            raise VerdictInvalid(f"two verdicts of criterion {verdict.criterion}")
        by_id[verdict.criterion] = verdict
    unknown = set(by_id) - {criterion.id for criterion in spec.criteria}
    if unknown:
        raise VerdictInvalid(f"no such criterion in the rubric: {', '.join(sorted(unknown))}")
    return [
        (criterion, by_id.get(criterion.id, Verdict(criterion.id, State.PENDING)))
        for criterion in spec.criteria
    ]
