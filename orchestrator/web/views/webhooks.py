"""Webhooks of a project: who hears what, what was sent, and sending it again. For admins."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.projects.access import project_for_admin
from orchestrator.web import access
from orchestrator.web.frame import Crumb, page
from orchestrator.webhooks.queries import deliveries_of, webhooks_of
from orchestrator.webhooks.services import (
    WebhookRefused,
    add_webhook,
    remove_webhook,
    replay,
    send_ping,
    set_active,
)
from orchestrator.webhooks.targets import MAX_URL, TargetRefused
from orchestrator.webhooks.topics import TOPICS

_SENT = "A ping is on its way. It is listed below as soon as it was sent."


class WebhookForm(forms.Form):
    url = forms.CharField(max_length=MAX_URL, strip=True)
    topics = forms.MultipleChoiceField(
        choices=[(topic.name, topic.title) for topic in TOPICS],
        error_messages={"required": "Choose at least one message."},
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def webhook_list(request: HttpRequest, project_id: int) -> HttpResponse:
    """A POST adds one, whose secret is shown this once."""
    project = project_for_admin(request.user, project_id)
    form = WebhookForm(request.POST if request.method == "POST" else None)
    made = None
    if form.is_bound and form.is_valid():
        try:
            made = add_webhook(
                actor=request.user,  # type: ignore[arg-type] # login_required
                project=project,
                url=form.cleaned_data["url"],
                topics=form.cleaned_data["topics"],
            )
        except (TargetRefused, WebhookRefused) as refusal:
            form.add_error("url", str(refusal))
        else:
            form = WebhookForm()
    return page(
        request,
        "web/webhooks.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Webhooks")],
        status=422 if form.is_bound else 200,
        rows=webhooks_of(project.pk),
        form=form,
        chosen=form.data.getlist("topics") if form.is_bound else [t.name for t in TOPICS],  # type: ignore[attr-defined]
        topics=TOPICS,
        made=made,
    )


@login_required
@require_safe
def webhook_detail(request: HttpRequest, project_id: int, webhook_id: int) -> HttpResponse:
    webhook = access.webhook_for_admin(request.user, project_id, webhook_id)
    before = request.GET.get("before", "")
    found, older = deliveries_of(
        webhook.pk, before_id=int(before) if before.isdecimal() and len(before) < 19 else None
    )
    return page(
        request,
        "web/webhook.html",
        webhook.project,
        "settings",
        [
            Crumb("Settings", reverse("web:settings", args=[project_id])),
            Crumb("Webhooks", reverse("web:webhooks", args=[project_id])),
            Crumb(f"Webhook {webhook.pk}"),
        ],
        webhook=webhook,
        deliveries=found,
        older=older,
        is_later_page=bool(before),
    )


@login_required
@require_POST
def webhook_change(
    request: HttpRequest, project_id: int, webhook_id: int, action: str
) -> HttpResponse:
    webhook = access.webhook_for_admin(request.user, project_id, webhook_id)
    actor = request.user
    if action == "remove":
        remove_webhook(actor=actor, webhook=webhook)  # type: ignore[arg-type] # login_required
        messages.success(request, "The webhook is removed.")
        return redirect("web:webhooks", project_id)
    if action == "ping":
        send_ping(actor=actor, webhook=webhook)  # type: ignore[arg-type]
        messages.success(request, _SENT)
    else:
        set_active(actor=actor, webhook=webhook, is_active=action == "start")  # type: ignore[arg-type]
        words = "hears of what happens from now on" if action == "start" else "is stopped"
        messages.success(request, f"The webhook {words}.")
    return redirect("web:webhook", project_id, webhook_id)


@login_required
@require_POST
def delivery_replay(
    request: HttpRequest, project_id: int, webhook_id: int, delivery_id: int
) -> HttpResponse:
    delivery = access.delivery_for_admin(request.user, project_id, webhook_id, delivery_id)
    try:
        replay(actor=request.user, delivery=delivery)  # type: ignore[arg-type] # login_required
    except WebhookRefused as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, "It is sent again, with the same message id.")
    return redirect("web:webhook", project_id, webhook_id)
