"""Addresses of the list of rollouts, below `p/<project>/rollouts/`, and of saved views."""

from __future__ import annotations

from django.urls import path, re_path

from orchestrator.web.views import rollout_bulk, rollout_list, saved_views

urlpatterns = [
    path("", rollout_list.rollout_list, name="rollouts"),
    path("words.json", rollout_list.rollout_words, name="rollout_words"),
    path("<int:rollout_id>/peek/", rollout_list.rollout_peek, name="rollout_peek"),
    re_path(r"^export\.(?P<form>csv|jsonl)$", rollout_bulk.rollout_export, name="rollout_export"),
    path("compare/", rollout_bulk.compare_ticked, name="rollouts_compare"),
    path("re-grade/", rollout_bulk.regrade_ticked, name="rollouts_regrade"),
    re_path(r"^views/(?P<of>rollouts|runs)/save/$", saved_views.view_save, name="view_save"),
    path("views/<int:view_id>/remove/", saved_views.view_remove, name="view_remove"),
]
