from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from orchestrator.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("accounts/", include("orchestrator.projects.urls")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("orchestrator.api.urls")),
    path("", include("orchestrator.web.urls")),
]
