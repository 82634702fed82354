"""How the installation is, for its operators: what `manage.py doctor` says, and who runs."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.operating.findings import installation_findings
from orchestrator.operating.overview import process_rows
from orchestrator.projects.access import project_for_view
from orchestrator.web.frame import Crumb, page


@login_required
@require_safe
def system(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    if not request.user.is_superuser:
        raise PermissionDenied("Only operators of the installation see how it is.")
    findings = installation_findings()
    wrong = [one for one in findings if one.level in ("warn", "fail")]
    return page(
        request,
        "web/system.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("System")],
        wrong=sorted(wrong, key=lambda one: one.level != "fail"),
        well=[one for one in findings if one not in wrong],
        processes=process_rows(),
    )
