"""Is everything that a page depends on alive? Read by the status bar, never waited for by a page.

The model server is asked in a thread of its own with a deadline; a page shows its last answer.
Workers are seen by the leases that they hold, and those that hold none by their signs of life: with
neither, no worker is running, which must not read like one that has nothing to do.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import httpx
from django.conf import settings
from django.db.models import Count, Q, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from orchestrator.jobs.clock import instant
from orchestrator.jobs.models import Job, JobState
from orchestrator.processes.models import Process, ProcessKind
from orchestrator.processes.queries import gone_after_s

Level = Literal["ok", "warn", "bad", "unknown"]

DEADLINE_S = 0.5
FRESH_S = 5.0
WAITING_S = 15.0
"""A job that is announced and not taken for so long means that no worker listens."""
START = (
    "Start the workers with `make up`, or Celery as in docs/operations.md. Jobs wait for them and "
    "nothing is lost."
)


@dataclass(frozen=True)
class Sign:
    """One part's state in words."""

    name: str
    level: Level
    text: str
    detail: str = ""
    """A sentence more; commands stand between backticks."""
    url: str = ""
    """The page that tells more."""


class ModelServerProbe:
    """Remembers the last answer of the model server's /health; asks again when it is old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sign = Sign("model server", "unknown", "model server not asked yet")
        self._asked_at = float("-inf")

    def sign(self) -> Sign:
        with self._lock:
            if time.monotonic() - self._asked_at > FRESH_S:
                self._asked_at = time.monotonic()
                threading.Thread(target=self._ask, name="model-server-probe", daemon=True).start()
            return self._sign

    def _ask(self) -> None:
        url = f"http://127.0.0.1:{settings.MODEL_PORT}/health"
        try:
            reply = httpx.get(url, timeout=DEADLINE_S, trust_env=False)
            body = reply.json() if reply.status_code == 200 else {}
            model = str(body.get("model", ""))[:60] if isinstance(body, dict) else ""
            if reply.status_code == 200:
                sign = Sign("model server", "ok", "model server ok", model)
            else:
                sign = Sign("model server", "bad", f"model server answers {reply.status_code}", url)
        except (httpx.HTTPError, ValueError) as error:
            sign = Sign(
                "model server",
                "warn",
                "model server not reachable",
                f"{url}: {type(error).__name__}",
            )
        with self._lock:
            self._sign = sign


model_server = ModelServerProbe()


def worker_sign() -> Sign:
    """One query: who holds a lease or is alive, and does anything wait for too long?"""
    now = timezone.now()
    waiting = Q(state=JobState.QUEUED, created_at__lt=now - timedelta(seconds=WAITING_S)) & (
        Q(not_before=None) | Q(not_before__lt=now - timedelta(seconds=WAITING_S))
    )
    held = Q(state=JobState.RUNNING, lease_until__gt=now)
    lapsed = Q(state=JobState.RUNNING, lease_until__lte=now)
    alive = Process.objects.filter(
        kind=ProcessKind.WORKER, seen_at__gte=instant(-gone_after_s())
    ).order_by()
    n_alive = alive.values("kind").annotate(n=Count("pk")).values("n")
    found = Job.objects.filter(state__in=[JobState.QUEUED, JobState.RUNNING]).aggregate(
        workers=Count("worker", filter=held, distinct=True),
        held=Count("id", filter=held),
        lapsed=Count("id", filter=lapsed),
        waiting=Count("id", filter=waiting),
        # Added to an aggregate, so that there is one row where there is no job.
        alive=Count("id") * 0 + Coalesce(Subquery(n_alive), 0),
    )
    if found["workers"]:
        plural = "" if found["workers"] == 1 else "s"
        jobs = "" if found["held"] == 1 else "s"
        return Sign(
            "workers",
            "ok",
            f"{found['workers']} worker{plural} busy, {found['held']} job{jobs}",
        )
    if found["waiting"] or found["lapsed"]:
        n = found["waiting"] + found["lapsed"]
        return Sign(
            "workers",
            "bad",
            f"no worker takes jobs: {n} waiting",
            START,
        )
    if not found["alive"]:
        return Sign("workers", "warn", "no worker is running: start one with make up", START)
    plural = "" if found["alive"] == 1 else "s"
    return Sign("workers", "ok", f"{found['alive']} worker{plural} idle, no job waits")


def database_sign() -> Sign:
    """The page that shows it has just read from it."""
    return Sign(
        "database", "ok", "database ok", settings.DATABASES["default"]["ENGINE"].rsplit(".", 1)[-1]
    )


def signs() -> list[Sign]:
    return [database_sign(), worker_sign(), model_server.sign()]
