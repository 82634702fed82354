"""Saved views of lists: a filter, an order and columns under a name."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict
from urllib.parse import urlencode

from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, paging
from orchestrator.api.base import Endpoint, actor_of, api_url, operation, page_url, read
from orchestrator.api.making import made_once
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_view
from orchestrator.runs.models import ListKind, SavedView
from orchestrator.runs.rollout_list import SORTS as ROLLOUT_SORTS
from orchestrator.runs.run_list import SORTS as RUN_SORTS
from orchestrator.runs.saved_views import remove_view, save_view, seen_in, view_for

MOST_COLUMNS = 20
_SORTS = {ListKind.ROLLOUTS: ROLLOUT_SORTS, ListKind.RUNS: RUN_SORTS}


class SavedViewAnswer(TypedDict):
    id: int
    url: str
    html_url: Annotated[str, "The list as the view shows it."]
    of: Annotated[str, "Which list: rollouts or runs."]
    name: str
    owner: str
    query: Annotated[str, "The filter, as the list's page has it."]
    sort: Annotated[str, "Empty: the usual order."]
    columns: Annotated[list[str], "Empty: the usual ones."]
    is_shared: Annotated[bool, "Everybody in the project sees it."]
    changed_at: datetime.datetime


class ViewsQuery(serializers.Serializer[Any]):
    of = serializers.ChoiceField(ListKind.choices, required=False)


class NewView(serializers.Serializer[Any]):
    of = serializers.ChoiceField(ListKind.choices)
    name = serializers.CharField(max_length=80)
    query = serializers.CharField(max_length=2000, default="", allow_blank=True)
    sort = serializers.CharField(max_length=40, default="", allow_blank=True)
    columns = serializers.ListField(
        child=serializers.RegexField(r"\A[\w.:-]{1,80}\Z"), default=list, max_length=MOST_COLUMNS
    )
    is_shared = serializers.BooleanField(default=False, help_text="Needs an editor.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        known = _SORTS[ListKind(attrs["of"])]
        if attrs["sort"] and attrs["sort"].lstrip("-") not in known and attrs["sort"] not in known:
            raise serializers.ValidationError({"sort": f"accepts one of {', '.join(known)}"})
        return attrs


class SavedViews(Endpoint):
    area = "project"

    @operation(page_of(SavedViewAnswer), query=ViewsQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The caller's own views and the project's, in the order they were made."""
        project = project_for_view(request.user, project_id)
        asked = read(ViewsQuery, request.query_params)
        return Response(
            paging.paged(
                request,
                seen_in(project.pk, actor_of(request)).filter(**asked),
                lambda rows: [view_answer(request, row) for row in rows],
                html_url=page_url(request, asked.get("of", ListKind.ROLLOUTS), project.pk),
                newest_first=False,
            )
        )

    @operation(
        SavedViewAnswer,
        body=NewView,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Kept; one's own of that name is replaced.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Keeps a view."""
        project = project_for_view(request.user, project_id)
        asked = read(NewView, request.data)
        actor = actor_of(request)
        return made_once(
            request,
            lambda: save_view(
                actor=actor, project=project, **{**asked, "of": ListKind(asked["of"])}
            ),
            lambda view: view_answer(request, view),
        )


class SavedViewDetail(Endpoint):
    area = "project"

    @operation(SavedViewAnswer)
    def get(self, request: Request, project_id: int, view_id: int) -> Response:
        """One view."""
        return Response(view_answer(request, _found(request, project_id, view_id)))

    @operation(None, status=204, says="Removed.")
    def delete(self, request: Request, project_id: int, view_id: int) -> Response:
        """Removes one's own; as an admin, one that is shared."""
        remove_view(actor=actor_of(request), view=_found(request, project_id, view_id))
        return Response(status=204)


def _found(request: Request, project_id: int, view_id: int) -> SavedView:
    project = project_for_view(request.user, project_id)
    view = view_for(project.pk, actor_of(request), view_id)
    if view is None:
        raise Http404("No such object.")
    return view


def view_answer(request: Request, view: SavedView) -> SavedViewAnswer:
    columns = [str(name) for name in view.columns]
    shown = [("q", view.query), ("sort", view.sort), ("col", ",".join(columns))]
    query = urlencode([(name, value) for name, value in shown if value])
    return {
        "id": view.pk,
        "url": api_url(request, "saved_view", view.project_id, view.pk),
        "html_url": page_url(request, view.of, view.project_id) + (query and f"?{query}"),
        "of": view.of,
        "name": view.name,
        "owner": view.owner.get_username(),
        "query": view.query,
        "sort": view.sort,
        "columns": columns,
        "is_shared": view.is_shared,
        "changed_at": view.changed_at,
    }
