"""The OpenAPI document, and the answer to an address that it does not have."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.base import Endpoint
from orchestrator.api.manual import groups_of
from orchestrator.projects.scopes import SCOPES


@cache
def document() -> dict[str, Any]:
    """Made once for each process: it changes with the code alone."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


@extend_schema(exclude=True)
class Description(Endpoint):
    """Open to everybody: it tells what the product is, and nothing of what is in it."""

    permission_classes = [AllowAny]
    authentication_classes = []
    throttle_classes = []

    def get(self, request: Request) -> Response:
        return Response(document())


@extend_schema(exclude=True)
class NoSuchAddress(Endpoint):
    permission_classes = [AllowAny]
    authentication_classes = []
    throttle_classes = []

    def get(self, request: Request) -> Response:
        raise Http404("There is no such address; /api/v1/openapi.json lists those there are.")

    post = put = patch = delete = get


@require_safe
def manual(request: HttpRequest) -> HttpResponse:
    """The document as a page. Open to everybody, like the document."""
    groups = groups_of(document(), request.build_absolute_uri("/").rstrip("/"))
    return render(request, "api/manual.html", {"groups": groups, "scopes": SCOPES})
