from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from orchestrator.api import (
    alarms,
    caps,
    climbs,
    comparison,
    endpoints,
    environment_urls,
    gates,
    harnesses,
    keeping_urls,
    projects,
    releases,
    review_urls,
    rollouts,
    rubric_urls,
    runs,
    saved_views,
    searches,
    sweeps,
    team,
    tokens,
    trainings,
    webhooks,
)
from orchestrator.api.addresses import actions
from orchestrator.api.description import Description, NoSuchAddress, manual
from orchestrator.api.otlp import OtlpTraces
from orchestrator.api.proposals import HandedIn
from orchestrator.api.search import EventSearch
from orchestrator.api.traces import Imported, Ingest, TraceFiles

app_name = "api"
PROJECT = "projects/<id:project_id>"


urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", Description.as_view(), name="openapi"),
    path("docs/", manual, name="docs"),
    path("me", projects.Me.as_view(), name="me"),
    path("projects", projects.Projects.as_view(), name="projects"),
    path(PROJECT, projects.ProjectDetail.as_view(), name="project"),
    path(f"{PROJECT}/members", projects.Members.as_view(), name="members"),
    path(f"{PROJECT}/members/<id:user_id>", projects.MemberDetail.as_view(), name="member"),
    path(f"{PROJECT}/tokens", tokens.Tokens.as_view(), name="tokens"),
    path(f"{PROJECT}/tokens/<id:token_id>", tokens.TokenDetail.as_view(), name="token"),
    path(f"{PROJECT}/views", saved_views.SavedViews.as_view(), name="saved_views"),
    path(f"{PROJECT}/views/<id:view_id>", saved_views.SavedViewDetail.as_view(), name="saved_view"),
    path(f"{PROJECT}/invitations", team.Invitations.as_view(), name="invitations"),
    path(
        f"{PROJECT}/invitations/<id:invitation_id>",
        team.InvitationDetail.as_view(),
        name="invitation",
    ),
    path(f"{PROJECT}/limits", team.Limits.as_view(), name="limits"),
    path(f"{PROJECT}/limits/judges", caps.JudgeLimits.as_view(), name="judge_limits"),
    path(f"{PROJECT}/limits/training", caps.TrainingLimits.as_view(), name="training_limits"),
    path(f"{PROJECT}/audit", team.Audit.as_view(), name="audit"),
    path(f"{PROJECT}/webhooks", webhooks.Webhooks.as_view(), name="webhooks"),
    path(f"{PROJECT}/webhooks/<id:webhook_id>", webhooks.WebhookDetail.as_view(), name="webhook"),
    path(f"{PROJECT}/webhooks/<id:webhook_id>/ping", webhooks.Ping.as_view(), name="webhook_ping"),
    path(
        f"{PROJECT}/webhooks/<id:webhook_id>/deliveries",
        webhooks.Deliveries.as_view(),
        name="deliveries",
    ),
    path(
        f"{PROJECT}/webhooks/<id:webhook_id>/deliveries/<id:delivery_id>",
        webhooks.DeliveryDetail.as_view(),
        name="delivery",
    ),
    path(
        f"{PROJECT}/webhooks/<id:webhook_id>/deliveries/<id:delivery_id>/replay",
        webhooks.Replay.as_view(),
        name="delivery_replay",
    ),
    path(f"{PROJECT}/", include(environment_urls.urlpatterns)),
    path(f"{PROJECT}/", include(keeping_urls.urlpatterns)),
    *keeping_urls.of_no_project,
    path(f"{PROJECT}/limits/storage", caps.StorageLimits.as_view(), name="storage_limits"),
    path(f"{PROJECT}/", include(rubric_urls.urlpatterns)),
    path(f"{PROJECT}/harnesses", harnesses.Harnesses.as_view(), name="harnesses"),
    path(f"{PROJECT}/harnesses/<id:harness_id>", harnesses.HarnessDetail.as_view(), name="harness"),
    path(f"{PROJECT}/releases", releases.Releases.as_view(), name="releases"),
    path(f"{PROJECT}/releases/<id:release_id>", releases.ReleaseDetail.as_view(), name="release"),
    path(
        f"{PROJECT}/releases/<id:release_id>/roll-back",
        releases.ReleaseRollBack.as_view(),
        name="release_roll_back",
    ),
    path(f"{PROJECT}/models", endpoints.Models.as_view(), name="models"),
    path(f"{PROJECT}/models/bundled", endpoints.BundledModel.as_view(), name="model_bundled"),
    path(f"{PROJECT}/models/<id:model_id>", endpoints.ModelDetail.as_view(), name="model"),
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
    path(f"{PROJECT}/comparison", comparison.Comparison.as_view(), name="comparison"),
    path(f"{PROJECT}/searches", searches.Searches.as_view(), name="searches"),
    path(f"{PROJECT}/searches/<id:search_id>", searches.SearchDetail.as_view(), name="search"),
    path(
        f"{PROJECT}/searches/<id:search_id>/events",
        searches.SearchEvents.as_view(),
        name="search_events",
    ),
    path(
        f"{PROJECT}/searches/<id:search_id>/decision",
        searches.SearchDecision.as_view(),
        name="search_decision",
    ),
    path(
        f"{PROJECT}/searches/<id:search_id>/budget",
        searches.SearchBudget.as_view(),
        name="search_budget",
    ),
    path(
        f"{PROJECT}/searches/<id:search_id>/nudges",
        searches.SearchNudges.as_view(),
        name="search_nudges",
    ),
    *actions(f"{PROJECT}/searches", "search", searches.SearchAction),
    path(f"{PROJECT}/climbs", climbs.Climbs.as_view(), name="climbs"),
    path(f"{PROJECT}/climbs/<id:climb_id>", climbs.ClimbDetail.as_view(), name="climb"),
    path(
        f"{PROJECT}/climbs/<id:climb_id>/events", climbs.ClimbEvents.as_view(), name="climb_events"
    ),
    path(
        f"{PROJECT}/climbs/<id:climb_id>/overrule",
        climbs.ClimbOverrule.as_view(),
        name="climb_overrule",
    ),
    path(
        f"{PROJECT}/climbs/<id:climb_id>/alarms", alarms.ClimbAlarms.as_view(), name="climb_alarms"
    ),
    path(
        f"{PROJECT}/climbs/<id:climb_id>/alarms/<id:alarm_id>/acknowledge",
        alarms.ClimbAlarmSeen.as_view(),
        name="climb_alarm_acknowledge",
    ),
    *actions(f"{PROJECT}/climbs", "climb", climbs.ClimbAction),
    path(f"{PROJECT}/trainings/sweeps", sweeps.Sweeps.as_view(), name="sweeps"),
    path(f"{PROJECT}/trainings/sweeps/<id:sweep_id>", sweeps.SweepDetail.as_view(), name="sweep"),
    *actions(f"{PROJECT}/trainings/sweeps", "sweep", sweeps.SweepAction),
    path(
        f"{PROJECT}/trainings/<id:job_id>/alarms",
        alarms.TrainingAlarms.as_view(),
        name="training_alarms",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/alarms/<id:alarm_id>/acknowledge",
        alarms.TrainingAlarmSeen.as_view(),
        name="training_alarm_acknowledge",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/checkpoints/<id:step>",
        trainings.CheckpointDetail.as_view(),
        name="checkpoint",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/checkpoints/<id:step>/merge",
        trainings.CheckpointMerge.as_view(),
        name="checkpoint_merge",
    ),
    path(f"{PROJECT}/trainings", trainings.Trainings.as_view(), name="trainings"),
    path(f"{PROJECT}/trainings/<id:job_id>", trainings.TrainingDetail.as_view(), name="training"),
    path(
        f"{PROJECT}/trainings/<id:job_id>/events",
        trainings.TrainingEvents.as_view(),
        name="training_events",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/curves",
        trainings.TrainingCurves.as_view(),
        name="training_curves",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/priority",
        trainings.TrainingPriority.as_view(),
        name="training_priority",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/checkpoints",
        trainings.Checkpoints.as_view(),
        name="checkpoints",
    ),
    path(
        f"{PROJECT}/trainings/<id:job_id>/checkpoints/<id:step>/promote",
        trainings.CheckpointPromotion.as_view(),
        name="checkpoint_promote",
    ),
    *actions(f"{PROJECT}/trainings", "job", trainings.TrainingAction, name="training"),
    path(f"{PROJECT}/gates", gates.Gates.as_view(), name="gates"),
    path(f"{PROJECT}/gates/<id:gate_id>", gates.GateDetail.as_view(), name="gate"),
    path(f"{PROJECT}/gates/<id:gate_id>/events", gates.GateEvents.as_view(), name="gate_events"),
    *actions(f"{PROJECT}/gates", "gate", gates.GateAction),
    path(f"{PROJECT}/", include(review_urls.urlpatterns)),
    path(f"{PROJECT}/ingest", Ingest.as_view(), name="ingest"),
    path(f"{PROJECT}/otlp/v1/traces", OtlpTraces.as_view(), name="otlp_traces"),
    path(f"{PROJECT}/events", EventSearch.as_view(), name="events"),
    path(f"{PROJECT}/traces/files", TraceFiles.as_view(), name="trace_files"),
    path(f"{PROJECT}/imported", Imported.as_view(), name="imported"),
    path(
        "searches/<id:search_id>/proposals/<id:round>/answer",
        HandedIn.as_view(),
        name="proposal_answer",
    ),
    # Last: everything else is a problem too, and no page of the product.
    re_path("", NoSuchAddress.as_view(), name="nothing"),
]
