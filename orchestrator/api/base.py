"""What every address of the API has in common.

A view names its `area`, by which scoped tokens are limited, and answers for an object of a project
through `found`: an id of another project is answered like one that does not exist. Whoever may do
something is asked by `project_for_view` and its like in `orchestrator.projects.access`; the body of
a request is read by a serializer of DRF, the answer is a TypedDict (see `shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from django.db import models
from django.http import Http404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
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

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "%00" in request.META.get("QUERY_STRING", ""):
            raise ValidationError({"query": ["holds a NUL character, which no text here has"]})

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: Any = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(answer, Response):
            answer.add_post_render_callback(_untie)
        return answer


def _untie(answer: Any) -> None:
    """Request, view and answer hold one another, and a refusal holds them by its traceback: with
    them a body of a hundred megabytes would stay until the garbage collector comes by.
    """
    vars(answer.renderer_context["request"]).clear()
    answer.renderer_context = {}


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
    try:
        found: dict[str, Any] = _kept(serializer).run_validation(data)
    except ValidationError:
        made = serializer(data=data)
        made.is_valid(raise_exception=True)  # tells it as DRF does
        found = made.validated_data
    return found


@cache
def _kept(serializer: type[Serializer[Any]]) -> Serializer[Any]:
    """One whose fields are there already: making them takes longer than reading a body. Validation
    leaves nothing in it.
    """
    return serializer(data={})


def found(query: models.QuerySet[M], **lookup: Any) -> M:
    """The one object, or 404."""
    one = query.filter(**lookup).first()
    if one is None:
        raise Http404("No such object.")
    return one


def chosen(query: models.QuerySet[M], field: str, **lookup: Any) -> M:
    """The object that a field of the request names. Raises ValidationError for that field."""
    return named(query.filter(**lookup).first(), field, **lookup)


def named(one: M | None, field: str, **lookup: Any) -> M:
    """What was found for a field of the request. Raises ValidationError for it if nothing was."""
    if one is None:
        named = ", ".join(f"{name.rpartition('__')[2]} {value!r}" for name, value in lookup.items())
        raise ValidationError({field: [f"names nothing of this project: {named}"]})
    return one


def actor_of(request: Request) -> User:
    assert isinstance(request.user, User), "authentication comes first"
    return request.user


def page_url(request: Request, name: str, *args: object) -> str:
    """The whole address of a page for people."""
    return _base(request) + _path(f"web:{name}", args)


def api_url(request: Request, name: str, *args: object) -> str:
    return _base(request) + _path(f"api:{name}", args)


def _base(request: Request) -> str:
    """Scheme and host, worked out once for each request."""
    http: Any = request._request
    if not hasattr(http, "api_base"):
        http.api_base = http.build_absolute_uri("/").removesuffix("/")
    base: str = http.api_base
    return base


def _path(name: str, args: tuple[object, ...]) -> str:
    return _form(name, len(args)).format(
        *(arg if isinstance(arg, int) else quote(str(arg), safe="") for arg in args)
    )


_SENTINEL = 900_000_000_000_000


@cache
def _form(name: str, n_args: int) -> str:
    """The address with `{}` for its arguments: a list of 50 runs has 150 addresses, and resolving
    each took a quarter of its time.
    """
    numbers = [_SENTINEL + place for place in range(n_args)]
    path = reverse(name, args=numbers)
    for number in numbers:
        path = path.replace(str(number), "{}")
    return path


def created(request: Request, answer: Any, location: str, *, status: int = 201) -> Response:
    return Response(answer, status=status, headers={"Location": location})


@contextmanager
def conflicts() -> Iterator[None]:
    """What the product refuses inside is due to the state of the object: 409."""
    try:
        yield
    except REFUSALS as refused:
        raise Conflict(str(refused)) from refused
