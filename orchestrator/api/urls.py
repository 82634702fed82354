from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from orchestrator.api.proposals import HandedIn
from orchestrator.api.search import EventSearch
from orchestrator.api.traces import Imported, Ingest

app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("projects/<int:project_id>/ingest", Ingest.as_view(), name="ingest"),
    path("projects/<int:project_id>/events", EventSearch.as_view(), name="events"),
    path("projects/<int:project_id>/imported", Imported.as_view(), name="imported"),
    path(
        "searches/<int:search_id>/proposals/<int:round>/answer",
        HandedIn.as_view(),
        name="proposal_answer",
    ),
]
