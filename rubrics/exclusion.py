"""A rollout's score as if some criteria were not asked, from verdicts that exist. Pure.

What is left out counts as not applicable, so it leaves the denominator and cannot fail a rollout.
What stood behind a gate or in a sequence after it was not graded when it failed: those verdicts
are missing, and the score says so by being not applicable where nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rubrics.aggregate import aggregate
from rubrics.types import RubricSpec, Score, Verdict


def aggregate_without(
    spec: RubricSpec, verdicts: Iterable[Verdict], left_out: Mapping[str, str]
) -> Score:
    """`left_out`: id of a criterion -> why. Ids that the rubric does not have are of no effect.

    Raises VerdictInvalid as `aggregate` does.
    """
    criteria = {criterion.id: criterion for criterion in spec.criteria}
    given = {verdict.criterion: verdict for verdict in verdicts}
    excluded = {
        id: Verdict.not_applicable(criteria[id], f"left out: {why or 'barred'}")
        for id, why in left_out.items()
        if id in criteria
    }
    return aggregate(spec, {**given, **excluded}.values())
