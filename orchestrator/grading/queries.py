"""What pages and the API read of rubrics, and of what was made and tried with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Max, QuerySet

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.grading.models import (
    GoldenCase,
    HackingAlarm,
    Regrade,
    RegradedScore,
    RubricDraft,
    RubricSuggestion,
)
from orchestrator.prepared import Prepared
from orchestrator.runs.models import Rollout, Run
from rubrics.models import Rubric, RubricVersion


def rubrics_in(project_id: int) -> QuerySet[Rubric]:
    return Rubric.objects.filter(project_id=project_id).select_related("project")


def rubrics_with_versions(project_id: int) -> QuerySet[Rubric]:
    return rubrics_in(project_id).select_related("draft").prefetch_related("versions")


def rubric_versions_in(project_id: int) -> QuerySet[RubricVersion]:
    """Versions of all rubrics of a project."""
    return RubricVersion.objects.filter(rubric__project_id=project_id).select_related("rubric")


def rubric_drafts_in(project_id: int) -> QuerySet[RubricDraft]:
    return RubricDraft.objects.filter(rubric__project_id=project_id).select_related("rubric")


def golden_in(project_id: int) -> QuerySet[GoldenCase]:
    return GoldenCase.objects.filter(rubric__project_id=project_id).select_related("rubric")


def suggestions_in(project_id: int) -> QuerySet[RubricSuggestion]:
    suggestions = RubricSuggestion.objects.filter(rubric__project_id=project_id)
    return suggestions.select_related("rubric", "job", "endpoint")


def regrades_in(project_id: int) -> QuerySet[Regrade]:
    """Back-tests too."""
    regrades = Regrade.objects.filter(project_id=project_id)
    return regrades.select_related("version", "job", "project")


def regraded_scores(regrade_id: int) -> QuerySet[RegradedScore]:
    return RegradedScore.objects.filter(regrade_id=regrade_id)


def hacking_alarms(climb_id: int) -> QuerySet[HackingAlarm]:
    """All that a climb has warned of."""
    return HackingAlarm.objects.filter(climb_id=climb_id).select_related("acknowledged_by")


_of_rubric = Prepared(
    lambda project, rubric: rubric_versions_in(project).filter(rubric=rubric).order_by("-number"),
    project=int,
    rubric=int,
)
_of_rubric_and_number = Prepared(
    lambda project, rubric, number: rubric_versions_in(project).filter(
        rubric=rubric, number=number
    ),
    project=int,
    rubric=int,
    number=int,
)


def version_of(project_id: int, rubric_id: int, number: int | None = None) -> RubricVersion | None:
    """The newest version without a number."""
    if number is None:
        return _of_rubric.first(project=project_id, rubric=rubric_id)
    return _of_rubric_and_number.first(project=project_id, rubric=rubric_id, number=number)


def draft_of(rubric: Rubric) -> RubricDraft | None:
    return (
        RubricDraft.objects.select_related("rubric__project", "base", "updated_by")
        .filter(rubric=rubric)
        .first()
    )


def versions_of(rubric: Rubric) -> list[RubricVersion]:
    """Newest first."""
    return list(rubric.versions.order_by("-number"))


def version_numbered(rubric: Rubric, number: int | None) -> RubricVersion | None:
    """The newest for None."""
    versions = rubric.versions.select_related("rubric__project").order_by("-number")
    return versions.first() if number is None else versions.filter(number=number).first()


def drafts_by_rubric(project_id: int) -> Mapping[int, RubricDraft]:
    drafts = RubricDraft.objects.filter(rubric__project_id=project_id).select_related("updated_by")
    return {draft.rubric_id: draft for draft in drafts}


def published_ids(rubric: Rubric) -> set[str]:
    """Ids of criteria that a version has: history hangs on them, so they stay."""
    return {
        str(criterion.get("id"))
        for spec in rubric.versions.values_list("spec", flat=True)
        for criterion in spec.get("criteria") or ()
        if isinstance(criterion, Mapping)
    }


def endpoints_of(project_id: int) -> Sequence[Mapping[str, Any]]:
    """Models that may be asked, the project's judge first."""
    rows = ModelEndpoint.objects.filter(project_id=project_id).order_by("-is_judge", "name")
    return [{"id": row.pk, "name": row.name, "is_judge": row.is_judge} for row in rows]


def environments_of(project_id: int) -> Sequence[Mapping[str, Any]]:
    """The newest version of each, with what a choice shows; those with recent rollouts first."""
    newest: dict[int, EnvironmentVersion] = {}
    rows = EnvironmentVersion.objects.filter(environment__project_id=project_id)
    for row in rows.select_related("environment").order_by("environment_id", "number"):
        newest[row.environment_id] = row
    used = dict(
        Run.objects.filter(project_id=project_id)
        .values_list("environment_version__environment_id")
        .annotate(newest=Max("id"))
    )
    listed = sorted(newest.values(), key=lambda row: -used.get(row.environment_id, 0))
    return [{"id": row.pk, "name": row.environment.name} for row in listed]


def newest_suggestion(rubric: Rubric) -> RubricSuggestion | None:
    return RubricSuggestion.objects.select_related("endpoint").filter(rubric=rubric).first()


def json_answers(project_id: int, n_rollouts: int = 200) -> list[Any]:
    """Of the newest rollouts, those answers that are JSON objects or lists."""
    answers = Rollout.objects.filter(run__project_id=project_id).order_by("-id")
    texts = answers.values_list("answer", flat=True)[:n_rollouts]
    return [value for text in texts if (value := _parsed(text)) is not None]


def _parsed(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
