"""From verdicts to one score: a single pure function.

Rules, in this order:

1. A verdict that is missing or pending makes the score pending.
2. A required criterion that errored makes the score errored: nothing is known about what the
   rubric insists on.
3. A required criterion that was decided and not passed makes the score 0.
4. Not applicable leaves the denominator; nothing applicable at all makes the score not
   applicable.
5. A criterion that errored and is not required is left out and counted (a rollout may have an
   error and a valid score), as long as at least `min_coverage` of the applicable weight was
   decided and one criterion that can earn something is among it. Below that the score is
   errored: a rest that happened to work must not stand for the whole.
6. Otherwise the score is (Σ w·v of the criteria − Σ w·v of the negative ones) / Σ w of the
   criteria that are not negative. Penalties end at 0 by definition: a rollout cannot be worse
   than worthless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from rubrics.errors import VerdictInvalid
from rubrics.types import Criterion, RubricSpec, Score, State, Verdict

Graded = tuple[Criterion, Verdict]


def is_passed(criterion: Criterion, verdict: Verdict) -> bool | None:
    """Whether the criterion is met; None where there is no value."""
    if verdict.value is None:
        return None
    if criterion.negative:
        return verdict.value < criterion.threshold
    return verdict.value >= criterion.threshold


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
    applicable = [(c, v) for c, v in graded if v.state is not State.NOT_APPLICABLE]
    if not any(not c.negative for c, _ in applicable):
        return score(State.NOT_APPLICABLE, reason="no criterion applies to this rollout")
    decided = [(c, v) for c, v in applicable if v.state is State.SCORED]
    coverage = _weight(decided) / _weight(applicable)
    if coverage < spec.min_coverage or not any(not c.negative for c, _ in decided):
        errors = "; ".join(_named(c, v) for c, v in graded if v.state is State.ERRORED)
        return score(
            State.ERRORED, reason=f"only {coverage:.0%} of the weight was decided: {errors}"
        )
    return score(State.SCORED, _weighted_mean(decided))


def _weighted_mean(decided: Sequence[Graded]) -> float:
    # Exact until the one rounding at the end, so neither the order of the criteria nor a common
    # factor of their weights can change a score.
    points = sum(
        (Fraction(v.value or 0.0) * (-c.weight if c.negative else c.weight) for c, v in decided),
        start=Fraction(0),
    )
    return float(max(Fraction(0), points / _weight((c, v) for c, v in decided if not c.negative)))


def _weight(graded: Iterable[Graded]) -> int:
    return sum(criterion.weight for criterion, _ in graded)


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
