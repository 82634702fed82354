"""Runs against a baseline, paired by task."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.base import Endpoint, operation, page_url, read
from orchestrator.environments.models import Split
from orchestrator.projects.access import project_for_view
from orchestrator.runs.comparison import conditions, reading, table
from orchestrator.runs.queries import finite_or_none


class WarningAnswer(TypedDict):
    code: str
    text: str


class ContrastAnswer(TypedDict):
    """One side against the baseline."""

    side: Annotated[str, "As asked for: the id of a run, or run.harness."]
    html_url: str
    difference: Annotated[float | None, "Mean over tasks, side minus baseline."]
    interval: Annotated[list[float] | None, "Of the difference, 95 %, by resampling tasks."]
    p_value: Annotated[float | None, "Of the sign flips, two-sided; null where not exact."]
    base_mean: float | None
    side_mean: float | None
    n_tasks: int
    n_pairs: Annotated[int, "Complete ones."]
    n_scheduled: int
    n_open: int
    n_not_applicable: int
    n_broken: Annotated[int, "Lack a score because a side errored or was cancelled."]
    coverage: float


class ComparisonAnswer(TypedDict):
    base: str
    html_url: str
    unknown: Annotated[list[str], "What was asked for and names nothing in this project."]
    warnings: Annotated[list[WarningAnswer], "What makes the sides hard to compare."]
    sides: list[ContrastAnswer]


class ComparisonQuery(serializers.Serializer[Any]):
    runs = serializers.CharField(
        max_length=400,
        help_text=f"2 to {reading.MAX_SIDES} ids of runs (or run.harness) with commas; the first "
        "is the baseline.",
    )
    split = serializers.ChoiceField(Split.choices, required=False)
    family = serializers.CharField(max_length=64, required=False)


class Comparison(Endpoint):
    area = "runs"

    @operation(ComparisonAnswer, query=ComparisonQuery)
    def get(self, request: Request, project_id: int) -> Response:
        """Differences in the score with intervals, paired by task and replicate."""
        project = project_for_view(request.user, project_id)
        asked = read(ComparisonQuery, request.query_params)
        sides, unknown = reading.sides_of(project.pk, asked["runs"].split(","))
        if len(sides) < 2:
            raise ValidationError(
                {"runs": [f"names {len(sides)} runs of this project; a comparison needs two"]}
            )
        facts = reading.facts_of(
            sides, family=asked.get("family", ""), split=asked.get("split", "")
        )
        rows = table.tasks_by_side(facts)
        missing = [table.alone(rows, side) for side in range(1, len(sides))]
        warned = conditions.warnings_of(
            reading.conditions_of(sides, facts),
            [(each.base, each.other) for each in missing],
            reading.changed_prompts(sides),
        )
        page = page_url(request, "compare", project.pk)
        tokens = [side.token for side in sides]
        answer: ComparisonAnswer = {
            "base": tokens[0],
            "html_url": f"{page}?runs={','.join(tokens)}",
            "unknown": unknown,
            "warnings": [{"code": each.code, "text": each.text} for each in warned],
            "sides": [
                contrast_answer(
                    tokens[place],
                    f"{page}?runs={tokens[0]},{tokens[place]}",
                    table.contrast(rows, place),
                )
                for place in range(1, len(sides))
            ],
        }
        return Response(answer)


def contrast_answer(token: str, page: str, contrast: table.Contrast) -> ContrastAnswer:
    paired = contrast.paired
    has_interval = paired.low is not None and paired.high is not None
    return {
        "side": token,
        "html_url": page,
        "difference": finite_or_none(paired.mean),
        "interval": [float(paired.low or 0.0), float(paired.high or 0.0)] if has_interval else None,
        "p_value": None if paired.sign_flip is None else finite_or_none(paired.sign_flip.two_sided),
        "base_mean": finite_or_none(contrast.base),
        "side_mean": finite_or_none(contrast.other),
        "n_tasks": paired.units,
        "n_pairs": paired.pairs,
        "n_scheduled": paired.scheduled,
        "n_open": contrast.n_open,
        "n_not_applicable": contrast.n_na,
        "n_broken": contrast.n_broken,
        "coverage": paired.coverage,
    }
