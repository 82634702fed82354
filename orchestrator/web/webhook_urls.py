from __future__ import annotations

from django.urls import path, re_path

from orchestrator.web.views import webhooks

urlpatterns = [
    path("", webhooks.webhook_list, name="webhooks"),
    path("<int:webhook_id>/", webhooks.webhook_detail, name="webhook"),
    re_path(
        r"^(?P<webhook_id>\d+)/(?P<action>ping|start|stop|remove)/$",
        webhooks.webhook_change,
        name="webhook_change",
    ),
    path(
        "<int:webhook_id>/deliveries/<int:delivery_id>/replay/",
        webhooks.delivery_replay,
        name="delivery_replay",
    ),
]
