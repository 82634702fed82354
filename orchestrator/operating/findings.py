"""What is wrong with an installation, finding by finding, each with its fix.

The same levels as those of a machine's isolation (`orchestrator.environments.diagnosis`): `fail`,
something that is needed is missing; `warn`, it runs with less than it should or will soon not;
`note`, worth knowing. Each group of findings is told even where another cannot be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.core import checks
from django.db.models import Count, F, Min, Q
from django.db.models.functions import Greatest

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.diagnosis import Finding, Level
from orchestrator.jobs.clock import instant, read_now
from orchestrator.jobs.models import Job, JobState
from orchestrator.operating import parts
from orchestrator.operating.orphans import orphans
from orchestrator.processes.models import Process, ProcessKind
from orchestrator.processes.queries import living, silent
from orchestrator.projects.secrets import SecretUnreadable, decrypt
from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook

log = structlog.get_logger(__name__)

WAITS_S = 120.0
"""A job that may run and waits for longer, while a slot is free, is stuck."""
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 5.0
LATELY = timedelta(hours=1)
MINUTES = timedelta(minutes=10)
_BAD: dict[parts.Level, Level] = {"ok": "ok", "degraded": "warn", "down": "fail"}


def installation_findings() -> list[Finding]:
    """All that can be told from here. Never raises."""
    states = parts.watch.states()
    found = [Finding(state.name, _BAD[state.level], state.text, state.fix) for state in states]
    database = next((state for state in states if state.name == "database"), None)
    groups: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("settings", _settings),
        ("orphans", _orphans),
    ]
    if database is None or database.level == "ok":
        groups += [
            ("processes", _processes),
            ("clocks", _clocks),
            ("queues", _queues),
            ("jobs", _jobs),
            ("secrets", _secrets),
            ("webhooks", _webhooks),
        ]
    for name, group in groups:
        try:
            found += group()
        except Exception as error:
            # The boundary around a group: what cannot be told is told as such.
            log.warning("finding failed", finding=name, error=f"{type(error).__name__}: {error}")
            text = f"cannot be told: {type(error).__name__}: {error}".splitlines()[0]
            found.append(Finding(name, "warn", text, "see the other findings first"))
    return found


def _settings() -> Iterator[Finding]:
    yield from _settings_told()


@functools.cache
def _settings_told() -> tuple[Finding, ...]:
    """Once: they are read when the process starts."""
    return tuple(_checked())


def _checked() -> Iterator[Finding]:
    told = [one for one in checks.run_checks() if one.level >= checks.WARNING]
    for one in told:
        level: Level = "fail" if one.level >= checks.ERROR else "warn"
        yield Finding(f"settings ({one.id})", level, _line(one.msg), _line(one.hint or ""))
    if not told:
        yield Finding("settings", "ok", "nothing is set wrongly")


def _orphans() -> Iterator[Finding]:
    found = orphans()
    if found is None:
        yield Finding("orphans", "note", "whether processes are left over cannot be told here")
    elif found:
        pids = ", ".join(str(one.pid) for one in found[:10])
        text = f"{len(found)} left over by workers that are gone, process ids {pids}"
        end = f"kill {pids.replace(',', '')}"
        yield Finding("orphans", "warn", text, f"look at them, then end them: `{end}`")
    else:
        yield Finding("orphans", "ok", "no server or trainer is left over on this host")


def _processes() -> Iterator[Finding]:
    rows = list(living().only("kind", "host", "pid", "build", "version"))
    numbers = {kind: sum(row.kind == kind for row in rows) for kind in ProcessKind}
    counts = ", ".join(
        f"{n} {word if n == 1 else several}"
        for n, word, several in (
            (numbers[ProcessKind.WEB], "web process", "web processes"),
            (numbers[ProcessKind.WORKER], "worker", "workers"),
            (numbers[ProcessKind.SWEEP], "sweep", "sweeps"),
        )
    )
    hosts = len({row.host for row in rows})
    yield Finding("processes", "ok", f"{counts} on {hosts} host{'' if hosts == 1 else 's'}")
    if gone := list(silent().only("kind", "host", "pid")):
        names = ", ".join(str(row) for row in gone[:5])
        text = f"{len(gone)} ended without a word within the last hour: {names}"
        yield Finding("silent processes", "note", text, "see their logs, if nobody killed them")
    builds: dict[str, list[Process]] = {}
    for row in rows:
        builds.setdefault(row.build, []).append(row)
    if len(builds) > 1:
        text = "; ".join(
            f"{build}: {', '.join(str(row) for row in some[:3])}" for build, some in builds.items()
        )
        fix = "restart what runs older code; during a rolling restart this passes"
        yield Finding("versions", "warn", f"{len(builds)} builds run at once. {text}", fix)
    elif rows:
        yield Finding("versions", "ok", f"all run {rows[0].version}, build {rows[0].build}")


def _clocks() -> Iterator[Finding]:
    off: dict[str, float] = {}
    for row in living().only("host", "skew_s"):
        if abs(row.skew_s) > abs(off.get(row.host, 0.0)):
            off[row.host] = row.skew_s
    wrong = {host: skew_s for host, skew_s in off.items() if abs(skew_s) > SKEW_WARN_S}
    if not wrong:
        yield Finding("clocks", "ok", "hosts agree with the database within a second")
        return
    worst_s = max(abs(skew_s) for skew_s in wrong.values())
    level: Level = "fail" if worst_s > SKEW_FAIL_S else "warn"
    text = ", ".join(f"{host} is {skew_s:+.1f} s off" for host, skew_s in wrong.items())
    fix = "start a time service on these hosts and the database's: chrony, systemd-timesyncd"
    yield Finding("clocks", level, f"against the database's clock: {text}", fix)


def _queues() -> Iterator[Finding]:
    now = read_now()
    is_due = Q(state=JobState.QUEUED) & (Q(not_before=None) | Q(not_before__lte=instant()))
    slots: dict[str, int] = dict.fromkeys(settings.JOB_QUEUES, 0)
    workers: Any = living().filter(kind=ProcessKind.WORKER).values_list("queues", "slots")
    for queues, n in workers:
        for queue in queues:
            slots[queue] = slots.get(queue, 0) + n
    for queue in settings.JOB_QUEUES:
        rows = Job.objects.filter(queue=queue)
        told = rows.filter(state__in=(JobState.QUEUED, JobState.RUNNING)).aggregate(
            waiting=Count("pk", filter=is_due),
            running=Count("pk", filter=Q(state=JobState.RUNNING)),
            oldest=Min("created_at", filter=is_due),
        )
        made = rows.filter(created_at__gt=now - MINUTES).count()
        ended = rows.filter(ended_at__gt=now - MINUTES).count()
        waited_s = (now - told["oldest"]).total_seconds() if told["oldest"] else 0.0
        text = f"{told['waiting']} waiting, {told['running']} running, {slots[queue]} slots"
        if waited_s > WAITS_S and told["running"] < slots[queue]:
            text += f"; the oldest has waited {waited_s:.0f} s though a slot is free"
            fix = "see the workers' logs and the broker; the sweep announces jobs again"
            yield Finding(f"queue {queue}", "warn", text, fix)
        elif told["waiting"] > 10 and made > 2 * ended + 10:
            text += f"; it grows: {made} made and {ended} ended in ten minutes"
            fix = "more workers, or more slots each (`SWITCHBACK_WORKER_SLOTS`)"
            yield Finding(f"queue {queue}", "warn", text, fix)
        else:
            yield Finding(f"queue {queue}", "ok", text)


def _jobs() -> Iterator[Finding]:
    now = read_now()
    running = Job.objects.filter(state=JobState.RUNNING)
    lapsed = running.filter(lease_until__lt=instant(-settings.JOB_LEASE_S))
    struck = Job.objects.filter(
        state__in=(JobState.QUEUED, JobState.RUNNING),
        strikes__gte=Greatest(F("max_attempts") - 1, 2),
    )
    if ids := list(lapsed.values_list("pk", flat=True)[:5]):
        text = f"{lapsed.count()} have no living worker and were not taken over: {_ids(ids)}"
        fix = "start workers for their queues, and the sweep"
        yield Finding("stuck jobs", "fail", text, fix)
    else:
        yield Finding("stuck jobs", "ok", "every running job has a worker")
    if found := list(struck.values_list("pk", "kind", "error")[:5]):
        names = "; ".join(f"{pk} {kind}: {_line(error) or 'no error'}" for pk, kind, error in found)
        text = f"on their last attempt without progress: {names}"
        yield Finding("failing jobs", "warn", text, "see the workers' logs for these jobs")
    failed = Job.objects.filter(state=JobState.FAILED, ended_at__gt=now - LATELY)
    kinds = failed.order_by().values_list("kind").annotate(n=Count("pk")).order_by("-n")[:5]
    if told := ", ".join(f"{n} {kind}" for kind, n in kinds):
        last = failed.order_by("-ended_at").first()
        why = f"; the last: {_line(last.error)}" if last is not None and last.error else ""
        yield Finding("failed jobs", "note", f"within the last hour: {told}{why}")


def _secrets() -> Iterator[Finding]:
    unreadable = []
    kept = [
        *ModelEndpoint.objects.exclude(secret="").values_list("name", "secret"),
        *((f"webhook {pk}", secret) for pk, secret in Webhook.objects.values_list("pk", "secret")),
    ]
    for name, secret in kept:
        try:
            decrypt(secret)
        except SecretUnreadable:
            unreadable.append(name)
    if unreadable:
        text = f"{len(unreadable)} of {len(kept)} cannot be read: {', '.join(unreadable[:5])}"
        fix = "set `SECRET_KEY_PREVIOUS` to the key before, or enter these again"
        yield Finding("secrets", "fail", text, fix)
    else:
        yield Finding("secrets", "ok", f"{len(kept)} stored, all readable with this SECRET_KEY")


def _webhooks() -> Iterator[Finding]:
    stopped = Webhook.objects.filter(is_active=False).exclude(stopped_reason="")
    failing = []
    for hook in Webhook.objects.filter(is_active=True).only("pk", "project_id"):
        last = list(
            Delivery.objects.filter(webhook=hook)
            .order_by("-pk")
            .values_list("state", flat=True)[:3]
        )
        if len(last) == 3 and set(last) == {DeliveryState.FAILED.value}:
            failing.append(f"{hook.pk} of project {hook.project_id}")
    if ids := list(stopped.values_list("pk", flat=True)[:5]):
        text = f"stopped by Switchback: {_ids(ids)}"
        yield Finding("webhooks", "warn", text, "see their pages for the reason, then start them")
    if failing:
        text = f"the last three messages failed: {', '.join(failing[:5])}"
        yield Finding("webhooks", "warn", text, "see their pages for the answers, and the receiver")
    if not failing and not ids:
        yield Finding("webhooks", "ok", "none fails")


def _ids(ids: list[int]) -> str:
    return ", ".join(str(pk) for pk in ids)


def _line(text: str) -> str:
    lines = str(text).strip().splitlines()
    return lines[0][:200] if lines else ""
