from __future__ import annotations

from django.urls import include, path, re_path

from orchestrator.web.views import (
    checks,
    climb_report,
    climb_start,
    climbs,
    compare,
    curriculum,
    egress,
    environments,
    ledger,
    models,
    overview,
    rollout_exports,
    rollouts,
    rubrics,
    run_start,
    runs,
    settings,
    tryouts,
)

app_name = "web"
urlpatterns = [
    path("", overview.home, name="home"),
    path("theme/", overview.set_theme, name="theme"),
    path("p/<int:project_id>/", overview.overview, name="overview"),
    path("p/<int:project_id>/status/", overview.status, name="status"),
    path("p/<int:project_id>/environments/", environments.environment_list, name="environments"),
    path("p/<int:project_id>/environments/", include("orchestrator.web.authoring_urls")),
    path(
        "p/<int:project_id>/environments/<slug:slug>/",
        environments.environment_detail,
        name="environment",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/v<int:number>/tasks/<str:key>/",
        environments.task_detail,
        name="task",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/network/",
        egress.environment_network,
        name="environment_network",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/checks/",
        checks.environment_checks,
        name="environment_checks",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/checks/start/",
        checks.check_start,
        name="check_start",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/checks/<int:check_id>/cancel/",
        checks.check_cancel,
        name="check_cancel",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/try/",
        tryouts.environment_try,
        name="environment_try",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/try/<int:tryout_id>/",
        tryouts.tryout_page,
        name="tryout",
    ),
    re_path(
        r"^p/(?P<project_id>\d+)/environments/(?P<slug>[-\w]+)/try/(?P<tryout_id>\d+)"
        rf"/(?P<what>{'|'.join(tryouts.ACTIONS)})/$",
        tryouts.tryout_ask,
        name="tryout_ask",
    ),
    path(
        "p/<int:project_id>/environments/<slug:slug>/curriculum/",
        curriculum.environment_curriculum,
        name="environment_curriculum",
    ),
    path("p/<int:project_id>/runs/", runs.run_list, name="runs"),
    path("p/<int:project_id>/runs/start/", run_start.run_start, name="run_start"),
    path("p/<int:project_id>/runs/<int:run_id>/", runs.run_detail, name="run"),
    path("p/<int:project_id>/runs/<int:run_id>/cancel/", runs.run_cancel, name="run_cancel"),
    path("p/<int:project_id>/rollouts/<int:rollout_id>/", rollouts.rollout_page, name="rollout"),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/ledger/",
        ledger.rollout_ledger,
        name="rollout_ledger",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/ledger/look/",
        ledger.ledger_look,
        name="ledger_look",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/cards/",
        rollouts.rollout_cards,
        name="rollout_cards",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/outline/",
        rollouts.rollout_outline,
        name="rollout_outline",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/index.json",
        rollouts.rollout_index,
        name="rollout_index",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/find/",
        rollouts.rollout_find,
        name="rollout_find",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/events/<int:seq>/",
        rollouts.rollout_event,
        name="rollout_event",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/events/<int:seq>/media/<int:number>/",
        rollouts.rollout_media,
        name="rollout_media",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/trace.jsonl",
        rollout_exports.rollout_jsonl,
        name="rollout_jsonl",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/atif.json",
        rollout_exports.rollout_atif,
        name="rollout_atif",
    ),
    path(
        "p/<int:project_id>/rollouts/<int:rollout_id>/training-trace.jsonl",
        rollout_exports.rollout_training_trace,
        name="rollout_training_trace",
    ),
    path("p/<int:project_id>/compare/", compare.compare_runs, name="compare"),
    path(
        "p/<int:project_id>/compare/rollouts/<int:left_id>/<int:right_id>/",
        compare.compare_rollouts,
        name="compare_rollouts",
    ),
    path("p/<int:project_id>/rubrics/", rubrics.rubric_list, name="rubrics"),
    path("p/<int:project_id>/rubrics/", include("orchestrator.web.rubric_urls")),
    path("p/<int:project_id>/", include("orchestrator.web.regrade_urls")),
    path(
        "p/<int:project_id>/rubrics/<int:rubric_id>/calibration/",
        include("orchestrator.web.calibration_urls"),
    ),
    path("p/<int:project_id>/rubrics/<int:rubric_id>/", rubrics.rubric_detail, name="rubric"),
    path("p/<int:project_id>/review/", include("orchestrator.web.review_urls")),
    path("p/<int:project_id>/optimise/", include("orchestrator.web.search_urls")),
    path("p/<int:project_id>/harnesses/", include("orchestrator.web.harness_urls")),
    path("p/<int:project_id>/train/", include("orchestrator.web.training_urls")),
    path("p/<int:project_id>/ladder/", climbs.climb_list, name="climbs"),
    path("p/<int:project_id>/ladder/start/", climb_start.climb_start, name="climb_start"),
    path(
        "p/<int:project_id>/ladder/<int:climb_id>/overrule/",
        climb_start.climb_overrule,
        name="climb_overrule",
    ),
    path("p/<int:project_id>/ladder/<int:climb_id>/", climbs.climb_detail, name="climb"),
    re_path(
        r"^p/(?P<project_id>\d+)/ladder/(?P<climb_id>\d+)/report\.(?P<form>html|md)$",
        climb_report.climb_report,
        name="climb_report",
    ),
    re_path(
        r"^p/(?P<project_id>\d+)/ladder/(?P<climb_id>\d+)/(?P<action>pause|resume|cancel)/$",
        climbs.climb_action,
        name="climb_action",
    ),
    path(
        "p/<int:project_id>/ladder/<int:climb_id>/alarms/<int:alarm_id>/acknowledge/",
        climbs.alarm_acknowledge,
        name="alarm_acknowledge",
    ),
    path(
        "p/<int:project_id>/ladder/<int:climb_id>/certificates/<int:index>.json",
        climbs.certificate,
        name="certificate",
    ),
    path("p/<int:project_id>/settings/", settings.project_settings, name="settings"),
    path("p/<int:project_id>/settings/models/", models.model_list, name="models"),
    path("p/<int:project_id>/settings/models/limits/", models.judge_limits, name="judge_limits"),
    path("p/<int:project_id>/settings/models/bundled/", models.model_bundled, name="model_bundled"),
    re_path(
        r"^p/(?P<project_id>\d+)/settings/models/(?P<model_id>\d+)/(?P<action>judge|no-judge|remove)/$",
        models.model_change,
        name="model_change",
    ),
    path(
        "p/<int:project_id>/settings/tokens/<int:token_id>/revoke/",
        settings.token_revoke,
        name="token_revoke",
    ),
]
