"""The ends of logs that were cut off by an export.

What was under way comes in as ended, and no job tells its log so; neither does the log of what
ended while the export went through the tables, since the ends of logs are read first. Both get the
end that their row has, so that log and rows say the same, as everywhere. It has the time of the
import: that is when it was written.

Climbs and searches tell each state that they come into, and a search that failed may be resumed: an
end may stand in its log from before it went on, so it is the last state that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, Model, OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from optimizer.models import ENDED_SEARCH_STATES, Search, SearchState
from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb
from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent, append_many
from orchestrator.gates.models import ENDED_GATE_STATES, Gate
from orchestrator.projects.models import Project
from orchestrator.runs.models import ENDED_RUN_STATES, OPEN_ROLLOUT_STATES, Rollout, Run
from orchestrator.runs.queries import EMPTY_TALLY, ended_payload, tallies
from training.models import ENDED_TRAINING_STATES, TrainingJob

AT_ONCE = 500


def end_logs(project: Project) -> None:
    """Rollouts first: the end of a run has what they add up to."""
    rollouts = Rollout.everything.filter(run__project=project, outside=None)
    rollouts = rollouts.exclude(state__in=OPEN_ROLLOUT_STATES).prefetch_related("verdicts")
    removed = Event.objects.filter(stream=OuterRef("stream"), kind="trace.removed")
    _end(_without(rollouts, "rollout.ended").filter(~Exists(removed)), _ends_of_rollouts)
    # Not the one that holds rollouts from outside.
    runs = Run.objects.filter(project=project, state__in=ENDED_RUN_STATES)
    _end(_without(runs.exclude(rollouts__outside__isnull=False), "run.ended"), _ends_of_runs)
    gates = Gate.objects.filter(project=project, state__in=ENDED_GATE_STATES)
    _end(_without(gates, "gate.ended"), _ends_of_gates)
    trainings = TrainingJob.objects.filter(project=project, state__in=ENDED_TRAINING_STATES)
    _end(_without(trainings, "train.ended"), _told("train.ended"))
    climbs = Climb.objects.filter(project=project, state__in=ENDED_CLIMB_STATES)
    _end(_of_other_state(climbs, "climb.state"), _told("climb.state"))
    # That which waits for a person stays so; its log may lack that it went on and came so far.
    still = (*ENDED_SEARCH_STATES, SearchState.AWAITING_APPROVAL)
    searches = Search.objects.filter(project=project, state__in=still).exclude(stream=None)
    _end(_of_other_state(searches, "search.state"), _states_of_searches)


Ends = Callable[[list[Any]], Iterable[tuple[Any, list[NewEvent]]]]


def _without(rows: QuerySet[Any], kind: str) -> QuerySet[Any]:
    """Those whose log has no such event."""
    told = Event.objects.filter(stream=OuterRef("stream"), kind=kind)
    return rows.filter(~Exists(told)).order_by("pk")


def _of_other_state(rows: QuerySet[Any], kind: str) -> QuerySet[Any]:
    """Those whose log tells another state last, or none: `last_told`, which is "" then."""
    told = Event.objects.filter(stream=OuterRef("stream"), kind=kind).order_by("-seq")
    last = Subquery(told.values_list(KT("payload__state"))[:1])
    rows = rows.annotate(last_told=Coalesce(last, Value(""), output_field=TextField()))
    return rows.exclude(last_told=F("state")).order_by("pk")


def _end(rows: QuerySet[Any], ends: Ends) -> None:
    last = 0
    while found := list(rows.filter(pk__gt=last)[:AT_ONCE]):
        last = found[-1].pk
        batches = {row.stream_id: events for row, events in ends(found)}
        with transaction.atomic():
            append_many(batches=batches, words_later=True)


def _ends_of_rollouts(rollouts: list[Rollout]) -> Iterator[tuple[Model, list[NewEvent]]]:
    told: dict[int, set[str]] = {}
    verdicts = Event.objects.filter(
        stream__in=[rollout.stream_id for rollout in rollouts], kind="verdict"
    )
    for stream_id, payload in verdicts.values_list("stream_id", "payload"):
        told.setdefault(stream_id, set()).add(str(payload.get("criterion")))
    for rollout in rollouts:
        known = told.get(rollout.stream_id, set())
        events = [
            NewEvent(
                "verdict",
                {
                    "criterion": verdict.criterion,
                    "name": verdict.name,
                    "state": verdict.state,
                    "value": verdict.value,
                    "reason": verdict.reason,
                    "cites": verdict.cites,
                },
            )
            for verdict in rollout.verdicts.all()
            if verdict.criterion not in known
        ]
        yield rollout, [*events, NewEvent("rollout.ended", ended_payload(rollout))]


def _ends_of_runs(runs: list[Run]) -> Iterator[tuple[Model, list[NewEvent]]]:
    counted = tallies(run.pk for run in runs)
    for run in runs:
        yield (
            run,
            [
                NewEvent("tally", asdict(counted.get(run.pk, EMPTY_TALLY))),
                NewEvent("run.ended", {"state": run.state, "error": run.error}),
            ],
        )


def _ends_of_gates(gates: list[Gate]) -> Iterator[tuple[Model, list[NewEvent]]]:
    for gate in gates:
        names = ("state", "verdict", "reason", "sentence")
        yield gate, [NewEvent("gate.ended", {name: getattr(gate, name) for name in names})]


def _states_of_searches(searches: list[Any]) -> Iterator[tuple[Model, list[NewEvent]]]:
    """With `last_told`. One that told an end went on before its row was read."""
    for search, events in _told("search.state")(searches):
        if search.last_told in ENDED_SEARCH_STATES:
            resumed = SearchState.RUNNING if search.started_at else SearchState.QUEUED
            turn = NewEvent("search.state", {"state": resumed, "error": ""})
            events = [turn, *events]
        yield search, events


def _told(kind: str) -> Ends:
    def ends(rows: list[Any]) -> Iterator[tuple[Model, list[NewEvent]]]:
        for row in rows:
            told = {"state": row.state, "error": row.error}
            if kind == "train.ended" and row.state == "completed":
                told["step"] = row.chosen_step
            yield row, [NewEvent(kind, told)]

    return ends
