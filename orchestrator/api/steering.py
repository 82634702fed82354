"""Long work that people steer: what a search, a climb and a training job have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from orchestrator.api import following, idempotency, paging
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    conflicts,
    created,
    found,
    page_url,
    read,
)
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User


class Steered(Endpoint):
    """Addresses of one piece of work, which a subclass names."""

    reader: ClassVar[Callable[..., Project]] = staticmethod(project_for_view)
    """Finds the project for whoever reads; raises for those who may not."""

    @staticmethod
    def work_in(project: Project) -> Any:
        """The query of the work of a project."""
        raise NotImplementedError

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        raise NotImplementedError


class Listing(Steered):
    """All such work of a project, and where more of it is started."""

    list_page: ClassVar[str]
    """Name of the page with the same list for people."""

    @staticmethod
    def located(project: Project, **named: Any) -> Mapping[str, Any]:
        """What the address names beside the project, found or 404, before the body is read."""
        return named

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Callable[[], Any]:
        """Checks what a request names; calling what is returned starts the work."""
        raise NotImplementedError

    def listed(self, request: Request, project_id: int, *below: object, **filters: Any) -> Response:
        """`below`: what else the address of the list's page names."""
        project = self.reader(request.user, project_id)
        return Response(
            paging.paged(
                request,
                self.work_in(project).filter(**filters),
                lambda rows: [self.told(request, row) for row in rows],
                html_url=page_url(request, self.list_page, project.pk, *below),
            )
        )

    def started(
        self,
        request: Request,
        project_id: int,
        body: type[Serializer[Any]] | None = None,
        **named: Any,
    ) -> Response:
        """202 with where to follow it. `named`: by the address, see `located`.

        What can be refused without a transaction is refused before one is begun, since the writers
        of SQLite wait for each other.
        """
        project = project_for_edit(request.user, project_id)
        place = self.located(project, **named)
        asked = {**(read(body, request.data) if body else {}), **place}
        start = self.planned(actor_of(request), project, asked)

        def work() -> Response:
            answer = self.told(request, found(self.work_in(project), pk=start().pk))
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, work)


class Detail(Steered):
    def answered(self, request: Request, project_id: int, pk: int) -> Response:
        project = self.reader(request.user, project_id)
        return Response(self.told(request, found(self.work_in(project), pk=pk)))


class Action(Steered):
    actions: ClassVar[Mapping[str, Callable[..., Any]]]
    """By the last word of the address; each takes `actor` and the work under `subject`."""
    subject: ClassVar[str]

    def done(self, request: Request, project_id: int, pk: int, action: str) -> Response:
        """409 where its state does not let it."""
        project = project_for_edit(request.user, project_id)
        work = found(self.work_in(project), pk=pk)
        actor: User = actor_of(request)
        with conflicts():
            self.actions[action](actor=actor, **{self.subject: work})
        return Response(self.told(request, found(self.work_in(project), pk=pk)), status=202)


class States(Steered):
    """For work without a log of its own: what it says of itself, whenever that has changed."""

    def answered(self, request: Request, project_id: int, pk: int) -> HttpResponseBase:
        project = self.reader(request.user, project_id)

        def look() -> Mapping[str, Any]:
            return self.told(request, found(self.work_in(project), pk=pk))

        return following.states_answer(request, look)


class Events(Steered):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        raise NotImplementedError

    def answered(self, request: Request, project_id: int, pk: int) -> HttpResponseBase:
        project = self.reader(request.user, project_id)
        work = found(self.work_in(project).select_related("stream"), pk=pk)
        return following.events_answer(
            request,
            work.stream,
            has_ended=self.told(request, work)["has_ended"],
            html_url=self.page(request, work),
        )
