"""One shape for every error of the REST API: RFC 9457, `application/problem+json`.

`title` is the status in words, `detail` what to do about it, `errors` the reasons one by one, each
with its field, where there are several or a field is to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.db import OperationalError
from rest_framework.response import Response
from rest_framework.views import exception_handler
from structlog.contextvars import get_contextvars

from optimizer.errors import HarnessInvalid
from orchestrator.agents.services import EndpointRefused
from orchestrator.climbs.services import ClimbError
from orchestrator.environments.authoring.archives import ArchiveRefusedError
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.errors import EnvironmentProbeError, SourceError
from orchestrator.environments.folders import FolderInvalid
from orchestrator.gates.errors import GateEnded, GateRefused
from orchestrator.grading.errors import DraftGone, GoldenFailures, GradingError, Stale
from orchestrator.harnesses.errors import ChangeRefused, UploadRefused
from orchestrator.jobs.surroundings import is_away
from orchestrator.keeping.errors import KeepingRefused
from orchestrator.projects.services import LastAdmin, TokenRefused
from orchestrator.projects.storage import StorageFull
from orchestrator.proposing.errors import AnswerRefused, NotWaiting
from orchestrator.review.errors import ItemGone, ReviewError, SeatLost
from orchestrator.runs.saved_views import ViewRefused
from orchestrator.runs.starting import RunRefused
from orchestrator.searches.releases import ReleaseRefused
from orchestrator.searches.services import SearchRefused
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.tryouts.errors import TryoutError
from rubrics.errors import RubricInvalid

CONTENT_TYPE = "application/problem+json"
INVALID = "The request is not valid."
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NotWaiting, 409),
    (Stale, 409),
    (DraftConflictError, 409),
    (SeatLost, 409),
    (GateEnded, 409),
    (LastAdmin, 409),
    (DraftGone, 404),
    (ItemGone, 404),
    (AnswerRefused, 422),
    (GoldenFailures, 422),
    (GradingError, 422),
    (ReviewError, 422),
    (DraftRefusedError, 422),
    (EnvironmentProbeError, 422),
    (SourceError, 422),
    (FolderInvalid, 422),
    (RunRefused, 422),
    (StorageFull, 422),
    (KeepingRefused, 422),
    (EndpointRefused, 422),
    (SearchRefused, 422),
    (ReleaseRefused, 422),
    (ClimbError, 422),
    (GateRefused, 422),
    (TrainingRefused, 422),
    (RubricInvalid, 422),
    (HarnessInvalid, 422),
    (TokenRefused, 422),
    (ViewRefused, 422),
    (UploadRefused, 422),
    (ArchiveRefusedError, 422),
    (TryoutError, 422),
    (ChangeRefused, 422),
)
"""What the product refuses, the first that fits: see the exception's own module."""
REFUSALS = tuple(kind for kind, _ in STATUS)


def problem(exc: Exception, context: dict[str, Any]) -> Response | None:
    """None for what is no answer to a client but a fault of ours."""
    for kind, status in STATUS:
        if isinstance(exc, kind):
            detail = exc.message if isinstance(exc, AnswerRefused) else str(exc)
            return problem_of(status, detail, reasons_of(exc))
    if isinstance(exc, OperationalError) and "locked" in str(exc):
        busy = problem_of(503, "Others are writing at the moment; nothing was done. Send it again.")
        busy.headers["Retry-After"] = "1"
        return busy
    if is_away(exc):
        away = problem_of(
            503,
            "The database cannot be used at the moment. Send it again, a POST under its"
            " Idempotency-Key: whether it was done before is found out then.",
        )
        away.headers["Retry-After"] = "5"
        return away
    answer = exception_handler(exc, context)
    if answer is None:
        return None
    detail, errors = _told(answer.data)
    made = problem_of(answer.status_code, detail, errors)
    for name, value in answer.headers.items():
        if name != "Content-Type":
            made.headers[name] = value
    return made


def problem_of(status: int, detail: str, errors: Sequence[Mapping[str, str]] = ()) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": list(errors),
        "request_id": str(get_contextvars().get("request_id", "")),
    }
    return Response(body, status=status, content_type=CONTENT_TYPE)


def reasons_of(exc: Exception) -> list[dict[str, str]]:
    """The findings of a refusal one by one, or its field where it names one."""
    findings: Any = next(
        (told for name in ("findings", "errors", "problems") if (told := getattr(exc, name, None))),
        None,
    )
    if isinstance(findings, Mapping):
        return [_reason(str(field), text) for field, text in findings.items()]
    if isinstance(findings, Sequence) and not isinstance(findings, str):
        return [_reason("", text) for text in findings]
    field: Any = getattr(exc, "field", "")
    return [_reason(field, exc)] if isinstance(field, str) and field else []


def _reason(field: str, message: object) -> dict[str, str]:
    return {"field": field, "message": str(message)}


def _told(data: Any, field: str = "") -> tuple[str, list[dict[str, str]]]:
    """The sentence of an exception of DRF, and its reasons by field."""
    if isinstance(data, Mapping) and set(data) == {"detail"}:
        return str(data["detail"]), []
    errors = list(_flat(data, field))
    first = errors[0] if errors else _reason("", "")
    where = f" {first['field']}: {first['message']}" if first["message"] else ""
    return f"{INVALID}{where}", errors


def _flat(data: Any, field: str) -> list[dict[str, str]]:
    """Reasons of nested fields, with their path: `tasks.3.key`."""
    if isinstance(data, Mapping):
        inner = [(str(name), told) for name, told in data.items()]
    elif isinstance(data, list) and any(isinstance(told, Mapping | list) for told in data):
        inner = [(str(number), told) for number, told in enumerate(data)]
    else:
        return [_reason(field, text) for text in (data if isinstance(data, list) else [data])]
    found: list[dict[str, str]] = []
    for name, told in inner:
        own = "" if name == "non_field_errors" else name
        found += _flat(told, ".".join(filter(None, (field, own))))
    return found
