"""What a project may use in a day and keep, and what it has used and keeps."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from orchestrator.judging.budget import spending_today
from orchestrator.projects.access import project_for_admin, project_for_view
from orchestrator.projects.storage import PARTS, amount, set_storage_cap, storage_of
from orchestrator.runs.limits import set_limits, use_today
from orchestrator.web.frame import Crumb, page

MAX_ROLLOUTS = 2**31 - 1
GB = 10**9


class DayForm(forms.Form):
    rollouts_per_day = forms.IntegerField(
        min_value=0,
        max_value=MAX_ROLLOUTS,
        required=False,
        label="Rollouts a day",
        help_text="Counted when a run is planned; empty: no cap.",
    )
    usd_per_day = forms.FloatField(
        min_value=0,
        required=False,
        label="USD a day on rollouts",
        help_text="By the prices of the endpoints; empty: no cap. A day ends at 00:00 UTC.",
    )
    storage_gb = forms.FloatField(
        min_value=0,
        max_value=1e6,
        required=False,
        label="GB kept",
        help_text="Of everything the project has; empty: no cap. What is there stays.",
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def project_limits(request: HttpRequest, project_id: int) -> HttpResponse:
    is_set = request.method == "POST"
    find = project_for_admin if is_set else project_for_view
    project = find(request.user, project_id)
    use = use_today(project.pk)
    kept = storage_of(project.pk)
    initial = {
        "rollouts_per_day": use.rollouts_cap,
        "usd_per_day": use.usd_cap,
        "storage_gb": None if kept.cap is None else kept.cap / GB,
    }
    form = DayForm(request.POST if is_set else None, initial=initial)
    if is_set and form.is_valid():
        set_limits(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project_id=project.pk,
            rollouts_per_day=form.cleaned_data["rollouts_per_day"],
            usd_per_day=form.cleaned_data["usd_per_day"],
        )
        storage_gb = form.cleaned_data["storage_gb"]
        set_storage_cap(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project_id=project.pk,
            storage_bytes=None if storage_gb is None else round(storage_gb * GB),
        )
        messages.success(request, "The caps hold for every run that starts from now on.")
        return redirect("web:limits", project.pk)
    return page(
        request,
        "web/limits.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Limits")],
        status=422 if form.is_bound else 200,
        use=use,
        judges=spending_today(project.pk),
        form=form,
        kept=kept,
        kept_bytes=amount(kept.total),
        kept_cap=None if kept.cap is None else amount(kept.cap),
        parts=[
            (PARTS.get(part, part), amount(size))
            for part, size in sorted(kept.by_part.items(), key=lambda item: -item[1])
        ],
    )
