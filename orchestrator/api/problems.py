"""One shape for every error of the REST API: RFC 9457, `application/problem+json`.

`title` is the status in words, `detail` what to do about it, `errors` the reasons one by one where
there are several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from rest_framework.response import Response
from rest_framework.views import exception_handler

from orchestrator.proposing.errors import AnswerRefused, NotWaiting

CONTENT_TYPE = "application/problem+json"


def problem(exc: Exception, context: dict[str, Any]) -> Response | None:
    """None for what is no answer to a client but a fault of ours."""
    if isinstance(exc, AnswerRefused):
        status = HTTPStatus.CONFLICT if isinstance(exc, NotWaiting) else 422
        return _response(int(status), exc.message, list(exc.findings))
    answer = exception_handler(exc, context)
    if answer is None:
        return None
    detail, errors = _told(answer.data)
    made = _response(answer.status_code, detail, errors)
    for name, value in answer.headers.items():
        if name != "Content-Type":
            made.headers[name] = value
    return made


def _response(status: int, detail: str, errors: Sequence[str]) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        body["errors"] = list(errors)
    return Response(body, status=status, content_type=CONTENT_TYPE)


def _told(data: Any) -> tuple[str, list[str]]:
    """The sentence of an exception of DRF, and its reasons by field."""
    if isinstance(data, Mapping) and "detail" in data:
        return str(data["detail"]), []
    if isinstance(data, Mapping):
        errors = [f"{field}: {text}" for field, told in data.items() for text in _list(told)]
    else:
        errors = [str(item) for item in _list(data)]
    return "The request is not valid.", errors


def _list(told: Any) -> list[Any]:
    return told if isinstance(told, list) else [told]
