"""What every address of the API has in common.

A view names its `area`, by which scoped tokens are limited, and answers for an object of a project
through `found`: an id of another project is answered like one that does not exist. Whoever may do
something is asked by `project_for_view` and its like in `orchestrator.projects.access`; the body of
a request is read by a serializer of DRF, the answer is a TypedDict (see `shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from django.db import models
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from orchestrator.api.errors import Conflict
from orchestrator.api.problems import REFUSALS
from orchestrator.api.shapes import schema_of
from orchestrator.projects.models import User

M = TypeVar("M", bound=models.Model)
V = TypeVar("V", bound=Callable[..., Any])


class Endpoint(APIView):
    """One address."""

    area: ClassVar[str] = ""
    """Whose scope a token needs: see `orchestrator.projects.scopes`."""


def operation(
    answer: Any,
    *,
    body: type[Serializer[Any]] | None = None,
    query: type[Serializer[Any]] | None = None,
    parameters: list[OpenApiParameter] | None = None,
    status: int = 200,
    says: str = "",
) -> Callable[[V], V]:
    """Tells the schema of a method: the shape it answers, the serializers that read what it takes.

    `answer`: a TypedDict, a schema made by `shapes`, or None for an answer without a body.
    """
    if answer is not None and not isinstance(answer, dict):
        answer = schema_of(answer)
    shown: list[Any] = [*(parameters or [])]
    if query is not None:
        shown.append(query)
    return extend_schema(
        request=body,
        parameters=shown,
        responses={status: OpenApiResponse(answer, description=says or "As asked for.")},
    )


def read(serializer: type[Serializer[Any]], data: Any) -> dict[str, Any]:
    """What a request gives, checked. Raises ValidationError that names fields."""
    made = serializer(data=data)
    made.is_valid(raise_exception=True)
    found: dict[str, Any] = made.validated_data
    return found


def found(query: models.QuerySet[M], **lookup: Any) -> M:
    """The one object, or 404."""
    one = query.filter(**lookup).first()
    if one is None:
        raise Http404("No such object.")
    return one


def chosen(query: models.QuerySet[M], field: str, **lookup: Any) -> M:
    """The object that a field of the request names. Raises ValidationError for that field."""
    one = query.filter(**lookup).first()
    if one is None:
        named = ", ".join(f"{name.rpartition('__')[2]} {value!r}" for name, value in lookup.items())
        raise ValidationError({field: [f"names nothing of this project: {named}"]})
    return one


def actor_of(request: Request) -> User:
    assert isinstance(request.user, User), "authentication comes first"
    return request.user


def page_url(request: Request, name: str, *args: object) -> str:
    """The whole address of a page for people."""
    return str(reverse(f"web:{name}", args=args, request=request))


def api_url(request: Request, name: str, *args: object) -> str:
    return str(reverse(f"api:{name}", args=args, request=request))


def created(request: Request, answer: Any, location: str, *, status: int = 201) -> Response:
    return Response(answer, status=status, headers={"Location": location})


@contextmanager
def conflicts() -> Iterator[None]:
    """What the product refuses inside is due to the state of the object: 409."""
    try:
        yield
    except REFUSALS as refused:
        raise Conflict(str(refused)) from refused
