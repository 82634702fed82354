from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path, register_converter

from orchestrator.api import projects, rollouts, runs
from orchestrator.api.addresses import IdConverter
from orchestrator.api.description import Description, NoSuchAddress
from orchestrator.api.proposals import HandedIn
from orchestrator.api.search import EventSearch
from orchestrator.api.traces import Imported, Ingest

register_converter(IdConverter, "id")

app_name = "api"
PROJECT = "projects/<id:project_id>"
urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", Description.as_view(), name="openapi"),
    path("me", projects.Me.as_view(), name="me"),
    path("projects", projects.Projects.as_view(), name="projects"),
    path(PROJECT, projects.ProjectDetail.as_view(), name="project"),
    path(f"{PROJECT}/members", projects.Members.as_view(), name="members"),
    path(f"{PROJECT}/runs", runs.Runs.as_view(), name="runs"),
    path(f"{PROJECT}/runs/<id:run_id>", runs.RunDetail.as_view(), name="run"),
    path(f"{PROJECT}/runs/<id:run_id>/cancel", runs.RunCancel.as_view(), name="run_cancel"),
    path(f"{PROJECT}/runs/<id:run_id>/events", runs.RunEvents.as_view(), name="run_events"),
    path(
        f"{PROJECT}/runs/<id:run_id>/rollouts",
        rollouts.RunRollouts.as_view(),
        name="run_rollouts",
    ),
    path(
        f"{PROJECT}/runs/<id:run_id>/rollouts.jsonl",
        rollouts.RunVerdicts.as_view(),
        name="run_rollouts_jsonl",
    ),
    path(f"{PROJECT}/rollouts/<id:rollout_id>", rollouts.RolloutDetail.as_view(), name="rollout"),
    path(
        f"{PROJECT}/rollouts/<id:rollout_id>/events",
        rollouts.RolloutEvents.as_view(),
        name="rollout_events",
    ),
    path(
        f"{PROJECT}/rollouts/<id:rollout_id>/trace.jsonl",
        rollouts.RolloutTrace.as_view(),
        name="rollout_trace",
    ),
    path(f"{PROJECT}/ingest", Ingest.as_view(), name="ingest"),
    path(f"{PROJECT}/events", EventSearch.as_view(), name="events"),
    path(f"{PROJECT}/imported", Imported.as_view(), name="imported"),
    path(
        "searches/<id:search_id>/proposals/<id:round>/answer",
        HandedIn.as_view(),
        name="proposal_answer",
    ),
    # Last: everything else is a problem too, and no page of the product.
    re_path("^.*$", NoSuchAddress.as_view(), name="nothing"),
]
