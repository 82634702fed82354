"""Whether to believe a criterion, in one word, beside every chart of it.

Nothing is barred here: a criterion below the bar with enough labels is *suggested*, and a person
decides (`orchestrator.grading.policies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.grading.policies import Bar, bar_of, barred
from orchestrator.review.calibration import Calibration
from orchestrator.review.calibration_queries import calibrations
from rubrics.models import Rubric, RubricVersion

GOOD, WEAK, FEW, BARRED = "good", "weak", "few", "barred"


@dataclass(frozen=True)
class Badge:
    state: str
    """good, weak, few or barred"""
    text: str
    about: str
    """A sentence for whoever asks."""


def badge_of(found: Calibration | None, bar: Bar, barred_why: str | None) -> Badge:
    """`barred_why`: None for a criterion that is not barred."""
    if barred_why is not None:
        return Badge(BARRED, "barred", f"Nothing is learned from it: {barred_why}")
    n = found.n if found else 0
    kappa = found.kappa if found else None
    if n < bar.min_labels:
        return Badge(
            FEW,
            f"{n} of {bar.min_labels} labels" if n else "no labels",
            f"{n} rollouts with a usable label; the project asks for {bar.min_labels}.",
        )
    if kappa is None:
        about = f"All {n} labels and verdicts fall on one side: agreement by chance is total."
        return Badge(FEW, "one-sided labels", about)
    text = f"κ {kappa:.2f}".replace("-", "\N{MINUS SIGN}")
    if kappa < bar.kappa:
        about = f"{text} of {n} labels is below the project's bar of {bar.kappa:g}."
        return Badge(WEAK, f"weak, {text}", about)
    return Badge(GOOD, text, f"{text} of {n} labels reaches the project's bar of {bar.kappa:g}.")


def is_suggested(found: Calibration, bar: Bar, barred_why: str | None) -> bool:
    """Whether a person should think of barring it."""
    return badge_of(found, bar, barred_why).state == WEAK


def badges_of(rubric: Rubric, version: RubricVersion) -> Mapping[str, Badge]:
    """By criterion of the version. Of several judges the one with most labels speaks."""
    bar, why = bar_of(rubric.project_id), barred(rubric.pk)
    found = calibrations(rubric, version)
    return {id: badge_of(each[0], bar, why.get(id)) for id, each in found.items()}
