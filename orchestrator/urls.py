from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from orchestrator.operating.views import healthz, metrics, readyz

handler400 = "orchestrator.bodies.refused"
urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("accounts/", include("orchestrator.projects.urls")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("orchestrator.api.urls")),
    path("", include("orchestrator.web.urls")),
]
