"""What agents and authors did on train tasks, for operators to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optimizer.engines.contract import SEED, Row
from optimizer.harness import Message
from optimizer.models import Search
from optimizer.operators import Trace
from orchestrator.environments.models import Split, Task
from orchestrator.proposing.evidence import traces_of
from orchestrator.runs.models import Rollout, RolloutState
from orchestrator.searches.rows import TWIN_STEP, rollouts_of


def references_of(search: Search) -> list[Trace]:
    tasks = Task.objects.filter(version_id=search.environment_version_id, split=Split.TRAIN)
    return [
        Trace(
            task=task.key,
            messages=[{"role": "user", "content": task.prompt}, *task.reference],
            stratum=task.family,
        )
        for task in tasks.order_by("key")
        if task.reference
    ]


def attempts_of(search: Search, rows: Sequence[Row]) -> list[Trace]:
    """Of the seed, in the order of the rows."""
    wanted = {(row.task, row.replicate): row for row in rows if row.candidate == SEED.key}
    found = {
        (rollout.task.key, rollout.replicate % TWIN_STEP): rollout
        for rollout in rollouts_of(search)
        if rollout.harness_id == search.seed_harness_id and rollout.state == RolloutState.SCORED
    }
    places = [place for place in wanted if place in found]
    rollouts = [found[place] for place in places]
    scores = {found[place].pk: wanted[place].score for place in places}
    traces = traces_of(search, rollouts, scores)
    return [
        replace(trace, messages=turns_of(rollout))
        for trace, rollout in zip(traces, rollouts, strict=True)
    ]


def turns_of(rollout: Rollout) -> list[Message]:
    turns = [{"role": "user", "content": rollout.task.prompt}]
    events = rollout.stream.events.filter(kind__in=["action", "observation"]).order_by("seq")
    for event in events:
        if event.kind == "action":
            turns.append({"role": "assistant", "content": event.payload["text"].strip()})
        elif not event.payload["done"]:
            text = "".join(segment["text"] for segment in event.payload["segments"])
            turns.append({"role": "user", "content": text})
    return turns
