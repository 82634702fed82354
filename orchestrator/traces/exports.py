"""A rollout's trace in the formats of others: ATIF, and OpenEnv's TrainingTrace.

What was imported in a format leaves in it as it came; what is ours is told by `atif` and, from the
stored tokens, by `training.exchange`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from orchestrator.events.models import Event
from orchestrator.runs.models import Rollout, TokenRow
from orchestrator.traces import foreign
from orchestrator.traces.atif import Sampled, Subject, to_atif
from orchestrator.traces.exact import dump, parse
from orchestrator.traces.models import OutsideRollout
from orchestrator.traces.queries import events_told, outside_of
from training.errors import RowError
from training.exchange import to_trace
from training.rows import row_from_json


class NoExport(Exception):
    """This rollout cannot be told in that format; the text says why."""


def atif_of(rollout: Rollout) -> str:
    """The trace as an ATIF document, in ASCII. Raises NoExport."""
    if owner := outside_of(rollout):
        events = _events(owner)
        if foreign.format_of(events) != foreign.ATIF:
            raise NoExport(
                "It was sent event by event by its producer, who did not say which of them are"
                " steps of an agent; the events as they were sent are its exact form."
            )
        return dump(foreign.to_atif_again(events))
    run = rollout.run
    facts = {
        "rollout": rollout.pk,
        "run": run.pk,
        "task": rollout.task.key,
        "split": rollout.task.split,
        "replicate": rollout.replicate,
        "seed": rollout.seed,
        "attempt": rollout.attempt,
        "state": rollout.state,
        "score": rollout.score,
        "reward": rollout.reward,
        "cause": rollout.cause,
        "message": rollout.message,
        "weight_version": rollout.weight_version,
    }
    subject = Subject(
        name=f"switchback-rollout-{rollout.pk}",
        model=run.model.name,
        harness=rollout.harness.short,
        tokens_in=rollout.tokens_in,
        tokens_out=rollout.tokens_out,
        cost_usd=rollout.cost_usd,
        facts=facts,
    )
    events_of_log = Event.objects.filter(stream_id=rollout.stream_id).order_by("seq")
    document = to_atif(list(events_of_log), subject, list(_sampled(rollout)))
    return json.dumps(document)


def training_traces_of(rollout: Rollout) -> list[str]:
    """One TrainingTrace in JSON per token row. Raises NoExport where there are no tokens."""
    if owner := outside_of(rollout):
        events = _events(owner)
        if foreign.format_of(events) == foreign.TRAINING_TRACE:
            return [dump(trace) for trace in foreign.to_training_traces_again(events)]
    rows = list(rollout.token_rows.order_by("index"))
    if not rows:
        raise NoExport(
            "A training trace is made of token ids, and none are stored for this rollout. They come"
            " from the Switchback model server; other endpoints return text alone."
        )
    try:
        return [json.dumps(to_trace(_row(rollout, row))) for row in rows]
    except RowError as error:
        raise NoExport(f"The stored tokens make no training trace: {error}") from error


def _row(rollout: Rollout, row: TokenRow) -> Any:
    kinds = [kind for kind, count in row.kinds for _ in range(count)]
    logprobs = iter(row.logprobs)
    record = {
        "rollout": f"switchback-rollout-{rollout.pk}",
        "group": rollout.task.key,
        "reward": rollout.score,
        "status": "ok" if rollout.score is not None else "infrastructure",
        "ids": row.ids,
        "kinds": kinds,
        "logprobs": [next(logprobs) if kind == "action" else 0.0 for kind in kinds]
        if row.logprobs
        else None,
        "weight_version": row.weight_version,
    }
    return row_from_json(record, where=f"row {row.index}")


def _sampled(rollout: Rollout) -> Iterator[Sampled]:
    for row in rollout.token_rows.order_by("index"):
        place, logprobs = 0, iter(row.logprobs)
        for kind, count in row.kinds:
            if kind == "action":
                ids = row.ids[place : place + count]
                yield Sampled(ids, [next(logprobs) for _ in range(count)])
            place += count


def _events(owner: OutsideRollout) -> list[dict[str, Any]]:
    return [parse(told.body) for told in events_told(owner)]
