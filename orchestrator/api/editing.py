"""Edits that overwrite nobody: `ETag` on what is read, `If-Match` on what changes it.

A tag is made of the fields that can be edited, so that live counts beside them do not change it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from orchestrator.api.base import Endpoint, actor_of, read
from orchestrator.api.errors import Changed, Unguarded
from orchestrator.projects.access import project_for_admin, project_for_view
from orchestrator.projects.models import Project, User

PARAMETER = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of what was read; `*` overwrites whatever is there.",
    required=True,
)


def tag_of(editable: Mapping[str, Any]) -> str:
    text = json.dumps(editable, sort_keys=True, cls=DjangoJSONEncoder)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'


def tagged(
    request: Request, answer: Mapping[str, Any], editable: Mapping[str, Any], *, status: int = 200
) -> Response:
    return Response(answer, status=status, headers={"ETag": tag_of(editable)})


def require_match(request: Request, editable: Mapping[str, Any]) -> None:
    """Raises Unguarded without `If-Match`, Changed when it names something else. Call it inside the
    transaction that makes the edit.
    """
    given = request.headers.get("If-Match", "").strip()
    if not given:
        raise Unguarded
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    if "*" not in tags and tag_of(editable) not in tags:
        raise Changed


class Settings(Endpoint):
    """Some settings of a project, told together with what they are about and set as a whole.

    What can be set, and so what the tag is made of, are the fields of `body`: the answer has them
    under the same names.
    """

    body: ClassVar[type[Serializer[Any]]]
    writer: ClassVar[Callable[..., Project]] = staticmethod(project_for_admin)
    """Finds the project for whoever sets them; raises for those who may not."""

    @staticmethod
    def now(request: Request, project: Project) -> Mapping[str, Any]:
        """The answer."""
        raise NotImplementedError

    @staticmethod
    def put_in_force(actor: User, project: Project, asked: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def told(self, request: Request, project_id: int) -> Response:
        return self._tagged(request, project_for_view(request.user, project_id))

    def changed(self, request: Request, project_id: int) -> Response:
        project = self.writer(request.user, project_id)
        asked = read(self.body, request.data)
        with transaction.atomic():
            require_match(request, self._editable(self.now(request, project)))
            self.put_in_force(actor_of(request), project, asked)
        return self._tagged(request, project)

    def _editable(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {name: answer[name] for name in self.body().get_fields()}

    def _tagged(self, request: Request, project: Project) -> Response:
        answer = self.now(request, project)
        return tagged(request, answer, self._editable(answer))
