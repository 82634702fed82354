"""Addresses of Optimise, below `p/<project>/optimise/`."""

from __future__ import annotations

from django.urls import path, re_path

from orchestrator.web.views import certificates, search_start, searches

urlpatterns = [
    path("", searches.search_list, name="searches"),
    path("new/", search_start.search_new, name="search_new"),
    path("new/forecast/", search_start.search_forecast, name="search_forecast"),
    path("<int:search_id>/", searches.search_page, name="search"),
    re_path(
        rf"^(?P<search_id>\d+)/(?P<action>{'|'.join(searches.ACTIONS)})/$",
        searches.search_action,
        name="search_action",
    ),
    path("<int:search_id>/budget/", searches.search_budget, name="search_budget"),
    path("<int:search_id>/nudge/", searches.search_nudge, name="search_nudge"),
    path(
        "<int:search_id>/proposals/<int:proposal_id>/",
        searches.search_proposal,
        name="search_proposal",
    ),
    path(
        "<int:search_id>/proposals/<int:proposal_id>/question.json",
        searches.search_question,
        name="search_question",
    ),
    path(
        "<int:search_id>/certificates/<int:comparison_id>/",
        certificates.search_certificate,
        name="search_certificate",
    ),
    re_path(
        r"^(?P<search_id>\d+)/certificates/(?P<comparison_id>\d+)\.(?P<form>json|html)$",
        certificates.certificate_export,
        name="certificate_export",
    ),
]
