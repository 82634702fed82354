"""What pages, runs and the API read of checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet

from orchestrator.environments.conformance.catalogue import CATALOGUE, Check
from orchestrator.environments.models import (
    CheckResult,
    CheckState,
    CheckStatus,
    EnvironmentCheck,
    EnvironmentVersion,
)

HISTORY = 20


@dataclass(frozen=True)
class Line:
    """One check of the report; `result` is None while it has not come."""

    check: Check
    result: CheckResult | None


@dataclass(frozen=True)
class Badge:
    """The newest finished check of a version in one mark."""

    version_id: int
    state: str
    """passed, warned, failed, never; `unsure` if something could not be told and nothing failed."""
    failed: int = 0
    warned: int = 0

    @property
    def text(self) -> str:
        match self.state:
            case "failed":
                return f"{self.failed} check{'s' if self.failed > 1 else ''} failed"
            case "warned":
                return f"checked, {self.warned} warning{'s' if self.warned > 1 else ''}"
            case "passed":
                return "checked"
            case "unsure":
                return "checked in part"
            case _:
                return "never checked"


def report_of(check: EnvironmentCheck) -> list[Line]:
    """In the catalogue's order, with the checks that are still to come."""
    found = {result.check_id: result for result in check.results.all()}
    return [Line(entry, found.get(entry.id)) for entry in CATALOGUE.values()]


def checks_in(project_id: int) -> QuerySet[EnvironmentCheck]:
    checks = EnvironmentCheck.objects.filter(version__environment__project_id=project_id)
    return checks.select_related("version__environment", "job").prefetch_related("results")


def checks_of(version_id: int) -> Sequence[EnvironmentCheck]:
    """The newest first."""
    return list(
        EnvironmentCheck.objects.filter(version_id=version_id)
        .select_related("asked_by")
        .prefetch_related("results")[:HISTORY]
    )


def latest_finished(version_id: int) -> EnvironmentCheck | None:
    return (
        EnvironmentCheck.objects.filter(version_id=version_id, state=CheckState.COMPLETED)
        .prefetch_related("results")
        .first()
    )


def badges(version_ids: Iterable[int]) -> dict[int, Badge]:
    """One per version, in one query."""
    wanted = list(version_ids)
    found = {pk: Badge(pk, "never") for pk in wanted}

    def number(status: CheckStatus) -> Count:
        return Count("results", filter=Q(results__status=status))

    checks = EnvironmentCheck.objects.filter(version_id__in=wanted, state=CheckState.COMPLETED)
    for check in checks.annotate(
        n_failed=number(CheckStatus.FAIL),
        n_warned=number(CheckStatus.WARN),
        n_untold=number(CheckStatus.ERROR),
    ).order_by("id"):
        found[check.version_id] = _badge(check)  # the newest comes last
    return found


def badge_of(version: EnvironmentVersion) -> Badge:
    return badges([version.pk])[version.pk]


def _badge(check: Any) -> Badge:
    """Of a check with its counts."""
    if check.n_failed:
        state = "failed"
    elif check.n_warned:
        state = "warned"
    elif check.n_untold:
        state = "unsure"
    else:
        state = "passed"
    return Badge(check.version_id, state, check.n_failed, check.n_warned)


def warnings_for(version: EnvironmentVersion) -> list[dict[str, str]]:
    """What the reader of a run on this version must know: [{"code", "text"}, …]."""
    check = latest_finished(version.pk)
    if check is None:
        return [
            {
                "code": "check.never",
                "text": "This version of the environment was never checked: whether its rewards "
                "can be earned without the task is unknown.",
            }
        ]
    return [
        {
            "code": f"check.{line.check.id}",
            "text": f"Failed check “{line.check.title}”: {line.result.evidence}",
        }
        for line in report_of(check)
        if line.result is not None and line.result.status == CheckStatus.FAIL
    ]


def seed_effect(version: EnvironmentVersion) -> str:
    """`honoured`, `ignored`, or `unknown` where nobody has found out."""
    check = latest_finished(version.pk)
    for result in check.results.all() if check else ():
        if result.check_id == "seed_control":
            return str(result.measured.get("seed", "unknown"))
    return "unknown"
