"""Addresses of Train."""

from __future__ import annotations

from django.urls import path, re_path

from orchestrator.web.views import (
    training,
    training_checkpoints,
    training_curves,
    training_start,
    training_steps,
)

urlpatterns = [
    path("", training.training_list, name="training"),
    path("new/", training_start.training_new, name="training_new"),
    path("curves/", training_curves.training_curves, name="training_curves"),
    path("curves/data/", training_curves.training_curves_data, name="training_curves_data"),
    path("quota/", training.training_quota, name="training_quota"),
    path("sweeps/<int:sweep_id>/", training_start.training_sweep, name="training_sweep"),
    path(
        "sweeps/<int:sweep_id>/cancel/",
        training_start.training_sweep_cancel,
        name="training_sweep_cancel",
    ),
    path("<int:job_id>/", training.training_detail, name="training_job"),
    re_path(
        r"^(?P<job_id>\d+)/(?P<action>pause|resume|cancel)/$",
        training.training_action,
        name="training_action",
    ),
    path("<int:job_id>/priority/", training.training_priority, name="training_priority"),
    path(
        "<int:job_id>/alarms/<int:alarm_id>/acknowledge/",
        training.training_alarm_acknowledge,
        name="training_alarm",
    ),
    path("<int:job_id>/steps/<int:step>/", training_steps.training_step, name="training_step"),
    path(
        "<int:job_id>/steps/<int:step>/groups/<path:task>/",
        training_steps.training_group,
        name="training_group",
    ),
    path(
        "<int:job_id>/checkpoints/<int:step>/promote/",
        training_checkpoints.checkpoint_promote,
        name="checkpoint_promote",
    ),
    path(
        "<int:job_id>/checkpoints/<int:step>/merge/",
        training_checkpoints.checkpoint_merge,
        name="checkpoint_merge",
    ),
    path(
        "<int:job_id>/checkpoints/<int:step>/adapter.zip",
        training_checkpoints.checkpoint_download,
        name="checkpoint_download",
    ),
]
