"""A rubric tried on one transcript, before it is published."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import work
from orchestrator.api.base import Endpoint, chosen, found, operation, page_url, read
from orchestrator.grading.preview import Line, preview
from orchestrator.grading.queries import golden_in, rubrics_in
from orchestrator.grading.writing import writing_of
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project
from orchestrator.runs.queries import finite_or_none, rollouts_to_read
from orchestrator.runs.transcripts import transcript_of
from rubrics.transcript_codec import from_json
from rubrics.types import Transcript


class PreviewLine(TypedDict):
    criterion: str
    name: str
    kind: str
    is_judged: Annotated[bool, "A model decides it."]
    state: Annotated[str, "Empty for one that cannot be graded as it is: see `problems`."]
    value: float | None
    passed: bool | None
    reason: str
    problems: list[str]


class PreviewAnswer(TypedDict):
    of: Annotated[str, "`draft`, or the version that was tried."]
    lines: list[PreviewLine]
    state: Annotated[str, "Of the score; empty while the rubric cannot be read as a whole."]
    score: float | None
    passes_at: float
    problems: list[str]
    took_s: float
    html_url: str


class PreviewOn(serializers.Serializer[Any]):
    rollout = work.id_field(required=False, help_text="Its id; or `golden_case`.")
    golden_case = work.id_field(required=False, help_text="Its id.")
    with_judges = serializers.BooleanField(
        default=False, help_text="Ask models too, which costs what they cost."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("rollout" in attrs) == ("golden_case" in attrs):
            raise serializers.ValidationError("accepts exactly one of rollout, golden_case")
        return attrs


class RubricPreview(Endpoint):
    area = "rubrics"

    @operation(PreviewAnswer, body=PreviewOn, says="Criterion by criterion.")
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Tries the draft, without one the newest version, on a transcript. Editors.

        Takes as long as grading takes; changes nothing.
        """
        project = project_for_edit(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(PreviewOn, request.data)
        writing = writing_of(rubric)
        transcript = _transcript(project, rubric.pk, asked)
        shown = preview(
            project.pk, writing.spec or {}, transcript, with_judges=asked["with_judges"]
        )
        answer: PreviewAnswer = {
            "of": writing.title,
            "lines": [_line(line) for line in shown.lines],
            "state": shown.score.state.value if shown.score else "",
            "score": finite_or_none(shown.score.value) if shown.score else None,
            "passes_at": shown.passes_at,
            "problems": [str(note.text) for note in shown.problems],
            "took_s": shown.took_s,
            "html_url": page_url(request, "rubric_preview", project.pk, rubric.pk),
        }
        return Response(answer)


def _transcript(project: Project, rubric_id: int, asked: dict[str, Any]) -> Transcript:
    if "rollout" in asked:
        return transcript_of(chosen(rollouts_to_read(project.pk), "rollout", pk=asked["rollout"]))
    cases = golden_in(project.pk).filter(rubric_id=rubric_id)
    case = chosen(cases, "golden_case", pk=asked["golden_case"])
    try:
        return from_json(case.transcript)
    except ValueError as error:
        raise ValidationError({"golden_case": [f"cannot be read: {error}"]}) from error


def _line(line: Line) -> PreviewLine:
    verdict = line.verdict
    return {
        "criterion": line.criterion,
        "name": line.name,
        "kind": line.kind,
        "is_judged": line.is_judged,
        "state": verdict.state.value if verdict else "",
        "value": finite_or_none(verdict.value) if verdict else None,
        "passed": line.passed,
        "reason": verdict.reason if verdict else "",
        "problems": [str(note.text) for note in line.problems],
    }
