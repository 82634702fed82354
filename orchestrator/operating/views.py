"""`/healthz`, `/readyz` and `/metrics`: addresses for load balancers and monitors."""

from __future__ import annotations

from dataclasses import asdict

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from orchestrator.operating import exposition, parts
from orchestrator.operating.access import may_look_inside


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """This process answers and reaches its database. No sign-in, no details."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return JsonResponse({"status": "no database"}, status=503)
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Whether this process can serve: 503 if not. `degraded`: it can, and something waits."""
    states = parts.watch.states()
    level = parts.worst(states)
    told: dict[str, object] = {"status": _WORDS[level]}
    if may_look_inside(request):
        told["parts"] = [asdict(state) for state in states]
    return JsonResponse(told, status=503 if level == "down" else 200)


_WORDS: dict[parts.Level, str] = {"ok": "ready", "degraded": "degraded", "down": "not ready"}


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_look_inside(request):
        text = (
            "Metrics are for monitors. Set SWITCHBACK_METRICS_TOKEN and send it as "
            "`Authorization: Bearer TOKEN`, or sign in as an operator.\n"
        )
        return HttpResponse(text, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(exposition.exposition(), content_type=exposition.CONTENT_TYPE)
