"""Rows for the checks, read as a stream in the order that they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from django.db.models import Count, Max, Min, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from optimizer.models import (
    ENDED_SEARCH_STATES,
    Budget,
    LedgerEntry,
    Proposal,
    Search,
    SearchState,
)
from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb, ClimbState, Rung
from orchestrator.events.models import Event, Stream
from orchestrator.gates.models import ENDED_GATE_STATES, Gate
from orchestrator.grading.models import Regrade, RegradeState
from orchestrator.invariants.budgets import BudgetRow, EntryRow
from orchestrator.invariants.jobs import OPEN, JobRow, OwnedRow
from orchestrator.invariants.logs import AttemptRow, StreamRow
from orchestrator.invariants.owners import EndRow, RungRow, StepRow, TallyRow, Turn, WaitRow
from orchestrator.invariants.rollouts import EventRow, RolloutRow, Told, VerdictRow
from orchestrator.invariants.webhooks import DeliveryRow
from orchestrator.jobs.clock import read_now
from orchestrator.jobs.models import Job
from orchestrator.runs.models import (
    ENDED_RUN_STATES,
    OPEN_ROLLOUT_STATES,
    Rollout,
    Run,
    VerdictRecord,
)
from orchestrator.runs.queries import EMPTY_TALLY, tallies
from orchestrator.webhooks.models import Delivery
from training.models import ENDED_TRAINING_STATES, TrainingJob

_CHUNK = 2000
_REMOVED = "trace.removed"
"""What a rule of retention leaves of a log."""
_OPEN_REGRADES = (RegradeState.QUEUED, RegradeState.RUNNING)


def streams() -> Iterator[StreamRow]:
    counted = Event.objects.filter(stream=OuterRef("pk")).order_by().values("stream")
    rows = Stream.objects.order_by("id").annotate(
        n=Coalesce(Subquery(counted.annotate(n=Count("id")).values("n")), 0),
        low=Subquery(counted.annotate(low=Min("seq")).values("low")),
        high=Subquery(counted.annotate(high=Max("seq")).values("high")),
    )
    for row in _rows(rows, "id", "kind", "last_seq", "n", "low", "high"):
        yield StreamRow(*row)


def attempts() -> Iterator[AttemptRow]:
    """Events that name the attempt of the trainer that wrote them."""
    rows = Event.objects.filter(kind="train.step", stream__kind="training_job")
    for stream_id, seq, kind, payload in _rows(
        rows.order_by("stream_id", "seq"), "stream_id", "seq", "kind", "payload"
    ):
        if isinstance(payload.get("attempt"), int):
            yield AttemptRow(stream_id, seq, kind, payload["attempt"])


def rollouts_twice() -> Iterator[tuple[int, int, int, int, int]]:
    names = ("run_id", "harness_id", "task_id", "replicate")
    rows = Rollout.objects.order_by().values(*names).annotate(n=Count("id")).filter(n__gt=1)
    yield from rows.values_list(*names, "n").iterator(_CHUNK)


def rollouts_with_logs() -> Iterator[tuple[RolloutRow, Told, list[VerdictRow]]]:
    """Of our own rollouts; those from outside have the course that their producer tells."""
    ours = Rollout.everything.filter(outside=None)
    told = _by_first(
        _rows(
            Event.objects.filter(
                kind__in=("rollout.started", "rollout.ended", "verdict", _REMOVED),
                stream__kind="rollout",
            ).order_by("stream_id", "seq"),
            *EventRow._fields,
        )
    )
    verdicts = _by_first(
        _rows(
            VerdictRecord.objects.filter(rollout__outside=None).order_by(
                "rollout__stream_id", "id"
            ),
            *("rollout__stream_id", "rollout_id", "criterion", "state", "value"),
        )
    )
    rows = _rows(ours.order_by("stream_id"), *RolloutRow._fields, "stream__last_seq")
    events_at, verdicts_at = _Beside(told), _Beside(verdicts)
    for *fields, last_seq in rows:
        row = RolloutRow(*fields)
        events = [EventRow(*event) for event in events_at.of(row.stream_id)]
        yield (
            row,
            Told(
                last_seq=last_seq,
                started=sum(event.kind == "rollout.started" for event in events),
                is_removed=any(event.kind == _REMOVED for event in events),
                ended=[event for event in events if event.kind == "rollout.ended"],
                verdicts=[event for event in events if event.kind == "verdict"],
            ),
            [VerdictRow(*verdict[1:]) for verdict in verdicts_at.of(row.stream_id)],
        )


def replaced() -> Iterator[tuple[RolloutRow, RolloutRow | None]]:
    """Rollouts that gave way to a retry, with it."""
    old = list(_rows(Rollout.everything.filter(is_replaced=True).order_by("id"), *_ROLLOUT))
    for start in range(0, len(old), 500):
        chunk = [RolloutRow(*row) for row in old[start : start + 500]]
        found = Rollout.everything.filter(retry_of_id__in=[row.id for row in chunk])
        retries = {
            row.retry_of_id: row for row in (RolloutRow(*r) for r in _rows(found, *_ROLLOUT))
        }
        for row in chunk:
            yield row, retries.get(row.id)


def ends() -> Iterator[EndRow]:
    for kind, query, ended, event, is_end in (
        ("run", _own_runs(), ENDED_RUN_STATES, "run.ended", None),
        ("climb", Climb.objects.all(), ENDED_CLIMB_STATES, "climb.state", ENDED_CLIMB_STATES),
        (
            "search",
            Search.objects.exclude(stream=None),
            ENDED_SEARCH_STATES,
            "search.state",
            ENDED_SEARCH_STATES,
        ),
        ("gate", Gate.objects.all(), ENDED_GATE_STATES, "gate.ended", None),
        ("training", TrainingJob.objects.all(), ENDED_TRAINING_STATES, "train.ended", None),
    ):
        # A climb's search tells its states on its own stream, a climb on the climb's.
        told = Event.objects.filter(kind=event).order_by("stream_id", "seq")
        beside = _Beside(_by_first(_rows(told, "stream_id", "payload")))
        rows: QuerySet[Any] = query.order_by("stream_id")
        for pk, stream_id, state in _rows(rows, "pk", "stream_id", "state"):
            said = [payload.get("state") for _, payload in beside.of(stream_id)]
            turns = [Turn(each, is_end is None or each in is_end) for each in said]
            yield EndRow(kind, pk, state, state in ended, turns)


def open_rollouts() -> Iterator[tuple[int, str, int]]:
    still = Rollout.objects.filter(
        state__in=OPEN_ROLLOUT_STATES, run__state__in=ENDED_RUN_STATES, outside=None
    )
    counted = still.order_by().values("run_id", "run__state").annotate(n=Count("id"))
    yield from counted.values_list("run_id", "run__state", "n")


def last_tallies() -> Iterator[TallyRow]:
    newest = Event.objects.filter(stream=OuterRef("stream"), kind="tally").order_by("-seq")
    rows = _own_runs().filter(state__in=ENDED_RUN_STATES).order_by("id")
    pairs = rows.annotate(told=Subquery(newest.values("id")[:1])).values_list("id", "told")
    for chunk in _chunks(pairs.iterator(_CHUNK), 500):
        payloads = dict(
            Event.objects.filter(id__in=[told for _, told in chunk if told]).values_list(
                "id", "payload"
            )
        )
        counted = tallies(run_id for run_id, _ in chunk)
        for run_id, told in chunk:
            if told:
                yield TallyRow(run_id, payloads[told], asdict(counted.get(run_id, EMPTY_TALLY)))


def rungs() -> Iterator[RungRow]:
    rows = Rung.objects.order_by("climb_id", "index")
    for row in _rows(rows, "climb_id", "climb__state", "index", "state", "verdict"):
        yield RungRow(*row)


def steps() -> Iterator[StepRow]:
    told = Event.objects.filter(kind="train.step", stream__training_job__isnull=False)
    for pk, total, payload in _rows(
        told.order_by("stream_id", "seq"),
        "stream__training_job",
        "stream__training_job__step",
        "payload",
    ):
        yield StepRow(pk, int(payload["step"]), total)


def jobs() -> Iterator[JobRow]:
    now = read_now()
    names = ("id", "kind", "state", "attempt", "strikes", "max_attempts", "worker", "error")
    for *fields, lease_until, started_at, ended_at in _rows(
        Job.objects.order_by("id"), *names, "lease_until", "started_at", "ended_at"
    ):
        overdue_s = (now - lease_until).total_seconds()
        lives = (overdue_s, started_at is not None, ended_at is not None)
        yield JobRow(*(*fields, *lives))


def owned() -> Iterator[OwnedRow]:
    """Runs, re-grades and trainings that are not over, with the job that works on them."""
    runs = Run.objects.exclude(state__in=ENDED_RUN_STATES).exclude(job=None)
    for pk, state, job in _rows(runs.order_by("id"), "id", "state", "job__state"):
        yield OwnedRow(f"run {pk}", state, job)
    regrades = Regrade.objects.filter(state__in=_OPEN_REGRADES).order_by("id")
    for pk, state, job in _rows(regrades, "id", "state", "job__state"):
        yield OwnedRow(f"re-grade {pk}", state, job)
    # One without a job waits for a device, or for a person.
    trainings = TrainingJob.objects.exclude(state__in=ENDED_TRAINING_STATES).exclude(job=None)
    for pk, state, job in _rows(
        trainings.filter(pause_reason="").order_by("id"), "id", "state", "job__state"
    ):
        yield OwnedRow(f"training {pk}", state, job)


def waiting() -> Iterator[WaitRow]:
    """Climbs, searches and gates under way, with what will move them."""
    open_jobs: dict[tuple[str, int], int] = defaultdict(int)
    names = {"climbs.advance": "climb_id", "searches.advance": "search_id"}
    names["gates.advance"] = "gate_id"
    for kind, spec in Job.objects.filter(kind__in=names, state__in=OPEN).values_list(
        "kind", "spec"
    ):
        open_jobs[kind, spec[names[kind]]] += 1
    climbs = Climb.objects.filter(state__in=(ClimbState.QUEUED, ClimbState.RUNNING))
    for climb in climbs.select_related("search", "training_job"):
        work = open_jobs["climbs.advance", climb.pk]
        work += climb.climb_runs.exclude(run__state__in=ENDED_RUN_STATES).count()
        work += climb.search is not None and not climb.search.has_ended
        work += climb.training_job is not None and not climb.training_job.has_ended
        yield WaitRow(f"climb {climb.pk}", climb.state, work)
    searches = Search.objects.filter(state__in=(SearchState.QUEUED, SearchState.RUNNING))
    for search in searches.exclude(stream=None):
        work = open_jobs["searches.advance", search.pk]
        work += search.search_runs.exclude(run__state__in=ENDED_RUN_STATES).count()
        work += search.proposals.filter(state=Proposal.State.WAITING).count()
        yield WaitRow(f"search {search.pk}", search.state, work)
    for gate in Gate.objects.exclude(state__in=ENDED_GATE_STATES):
        work = open_jobs["gates.advance", gate.pk]
        work += gate.gate_runs.exclude(run__state__in=ENDED_RUN_STATES).count()
        yield WaitRow(f"gate {gate.pk}", gate.state, work)


def budgets() -> tuple[Iterator[BudgetRow], Iterator[EntryRow]]:
    rows = (BudgetRow(*row) for row in _rows(Budget.objects.order_by("id"), *BudgetRow._fields))
    entries = _rows(LedgerEntry.objects.order_by("id"), *EntryRow._fields)
    return rows, (EntryRow(*row) for row in entries)


def deliveries() -> Iterator[DeliveryRow]:
    for pk, state, tried, job in _rows(
        Delivery.objects.order_by("id"), "id", "state", "attempts", "job__state"
    ):
        yield DeliveryRow(pk, state, [attempt.get("error", "") for attempt in tried], job)


_ROLLOUT = RolloutRow._fields


def _own_runs() -> QuerySet[Run]:
    """Without the one of each project that holds rollouts from outside."""
    return Run.objects.exclude(rollouts__outside__isnull=False)


def _rows(query: QuerySet[Any], *names: str) -> Iterator[tuple[Any, ...]]:
    return query.values_list(*names).iterator(_CHUNK)


def _chunks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _by_first(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """Groups of rows with the same first field, which they are ordered by."""
    key: int | None = None
    group: list[tuple[Any, ...]] = []
    for row in rows:
        if key is not None and row[0] != key:
            yield key, group
            group = []
        key = row[0]
        group.append(row)
    if key is not None:
        yield key, group


class _Beside:
    """Groups that are asked for in ascending order, read beside other rows."""

    def __init__(self, groups: Iterator[tuple[int, list[tuple[Any, ...]]]]) -> None:
        self._groups = groups
        self._next = next(groups, None)

    def of(self, key: int) -> list[tuple[Any, ...]]:
        while self._next is not None and self._next[0] < key:
            self._next = next(self._groups, None)
        if self._next is not None and self._next[0] == key:
            return self._next[1]
        return []
