from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from orchestrator.api.proposals import HandedIn

app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path(
        "searches/<int:search_id>/proposals/<int:round>/answer",
        HandedIn.as_view(),
        name="proposal_answer",
    ),
]
