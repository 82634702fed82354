"""Figures that the database knows, for `/metrics`: work that waits or runs, whoever does it.

Each is one query that an index answers or that reads a small table; what has ended is counted by
the processes as it ends (`orchestrator.measures`), so no figure costs more as history grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db.models import Case, CharField, Count, Max, Min, Q, Value, When
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from orchestrator.climbs.models import Climb
from orchestrator.events.indexing import waiting
from orchestrator.events.models import Event
from orchestrator.jobs.clock import instant, read_now
from orchestrator.jobs.models import Job, JobState
from orchestrator.processes.models import ProcessKind
from orchestrator.processes.queries import living
from orchestrator.runs.models import ENDED_RUN_STATES, OPEN_ROLLOUT_STATES, Rollout, Run
from orchestrator.webhooks.models import Webhook


def figures() -> Iterator[Metric]:
    """Raises django.db.Error."""
    yield from _jobs()
    yield from _workers()
    yield _counted(
        "switchback_runs_open",
        "Runs that have not ended.",
        Run.objects.exclude(state__in=ENDED_RUN_STATES).order_by(),
    )
    open_runs = Run.objects.exclude(state__in=ENDED_RUN_STATES).values("pk")
    yield _counted(
        "switchback_rollouts_open",
        "Rollouts of open runs that have not ended.",
        Rollout.objects.filter(run__in=open_runs, state__in=OPEN_ROLLOUT_STATES).order_by(),
    )
    yield _counted("switchback_climbs", "Climbs.", Climb.objects.order_by())
    hooks = GaugeMetricFamily("switchback_webhooks", "Webhooks.", labels=["state"])
    found = Webhook.objects.aggregate(
        active=Count("pk", filter=Q(is_active=True)),
        stopped=Count("pk", filter=Q(is_active=False) & ~Q(stopped_reason="")),
    )
    for state, n in found.items():
        hooks.add_metric([state], n)
    yield hooks
    yield GaugeMetricFamily(
        "switchback_index_backlog", "Events that wait for the full-text index.", value=waiting()
    )
    yield CounterMetricFamily(
        "switchback_events",
        "Events in the log; what was rolled back leaves gaps.",
        value=Event.objects.aggregate(last=Max("pk"))["last"] or 0,
    )


def _counted(name: str, text: str, rows: Any) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["state"])
    for state, n in rows.values_list("state").annotate(n=Count("pk")):
        family.add_metric([state], n)
    return family


def _jobs() -> Iterator[Metric]:
    now = read_now()
    is_due = Q(not_before=None) | Q(not_before__lte=instant())
    state = Case(
        When(state=JobState.RUNNING, lease_until__lt=instant(), then=Value("lapsed")),
        When(state=JobState.RUNNING, then=Value("running")),
        When(is_due, then=Value("queued")),
        default=Value("delayed"),
        output_field=CharField(),
    )
    rows = (
        Job.objects.filter(state__in=(JobState.QUEUED, JobState.RUNNING))
        .annotate(shown=state)
        .order_by()
        .values_list("queue", "kind", "shown")
        .annotate(n=Count("pk"), oldest=Min("created_at"), due=Min("not_before"))
    )
    jobs = GaugeMetricFamily(
        "switchback_jobs",
        "Jobs that have not ended; lapsed: their worker has let the lease run out.",
        labels=["queue", "kind", "state"],
    )
    ages = dict.fromkeys(settings.JOB_QUEUES, 0.0)
    for queue, kind, shown, n, oldest, due in rows:
        jobs.add_metric([queue, kind, shown], n)
        if shown == "queued":
            since = max(oldest, due) if due is not None else oldest
            ages[queue] = max(ages.get(queue, 0.0), (now - since).total_seconds())
    oldest_of = GaugeMetricFamily(
        "switchback_job_oldest_seconds",
        "How long the oldest job that may run has waited.",
        labels=["queue"],
    )
    for queue, age_s in ages.items():
        oldest_of.add_metric([queue], max(0.0, age_s))
    yield jobs
    yield oldest_of


def _workers() -> Iterator[Metric]:
    workers = GaugeMetricFamily(
        "switchback_workers", "Workers that give signs of life.", labels=["queue"]
    )
    slots = GaugeMetricFamily(
        "switchback_worker_slots", "Jobs that the workers of a queue run at once.", labels=["queue"]
    )
    n_of, slots_of = dict.fromkeys(settings.JOB_QUEUES, 0), dict.fromkeys(settings.JOB_QUEUES, 0)
    rows: Any = living().filter(kind=ProcessKind.WORKER).values_list("queues", "slots")
    for queues, n_slots in rows:
        for queue in queues:
            n_of[queue] = n_of.get(queue, 0) + 1
            slots_of[queue] = slots_of.get(queue, 0) + n_slots
    for queue, n in n_of.items():
        workers.add_metric([queue], n)
        slots.add_metric([queue], slots_of[queue])
    builds = GaugeMetricFamily("switchback_builds", "Different builds of the code that run.")
    builds.add_metric([], living().aggregate(n=Count("build", distinct=True))["n"])
    yield workers
    yield slots
    yield builds
