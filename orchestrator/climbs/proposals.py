"""Edits for a climb's search: from the train split's reference transcripts, and from what the seed
harness itself did there.

Nothing here looks at select or test tasks but the linter, which refuses an edit that copies them.
"""

from __future__ import annotations

from collections.abc import Iterable

from optimizer.edits import Edit
from optimizer.harness import Harness, Message
from optimizer.lint import HeldOut, accepted
from optimizer.operators import Trace, from_references, from_successes, instruction_pool
from orchestrator.climbs.learning import rewards_of_run
from orchestrator.climbs.settings import SearchSettings
from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.runs.models import Rollout, RolloutState, Run

SUCCESS = 0.9
"""Score from which an attempt of the agent's own is a demonstration."""


def propose_edits(
    *,
    seed_harness: Harness,
    version: EnvironmentVersion,
    evidence: Run,
    settings: SearchSettings,
    seed: int,
) -> list[Edit]:
    """Demonstrations spread over the task families, then ways to word the instructions; linted."""
    tasks = list(version.tasks.order_by("key"))
    attempts = own_traces(evidence)
    failed = sum(trace.score is not None and trace.score < SUCCESS for trace in attempts)
    edits = [
        *from_references(reference_traces(tasks), count=settings.demonstrations, seed=seed),
        *from_successes(attempts, count=settings.own_demonstrations, seed=seed, at_least=SUCCESS),
        *instruction_pool(support=failed),
    ]
    kept, _ = accepted(edits, seed_harness, held_out=held_out(tasks))
    return kept


def reference_traces(tasks: Iterable[Task]) -> list[Trace]:
    return [
        Trace(
            task=task.key,
            messages=[{"role": "user", "content": task.prompt}, *task.reference],
            stratum=task.family,
        )
        for task in tasks
        if task.split == Split.TRAIN and task.reference
    ]


def own_traces(run: Run) -> list[Trace]:
    """What the agent did in a run, as chat turns."""
    rollouts = run.rollouts.filter(state=RolloutState.SCORED).select_related("task", "stream")
    scores = rewards_of_run(run)
    return [
        Trace(
            task=rollout.task.key,
            messages=_turns(rollout),
            stratum=rollout.task.family,
            score=scores[rollout.pk],
        )
        for rollout in rollouts
    ]


def _turns(rollout: Rollout) -> list[Message]:
    turns = [{"role": "user", "content": rollout.task.prompt}]
    events = rollout.stream.events.filter(kind__in=["action", "observation"]).order_by("seq")
    for event in events:
        if event.kind == "action":
            turns.append({"role": "assistant", "content": event.payload["text"].strip()})
        elif not event.payload["done"]:
            text = "".join(segment["text"] for segment in event.payload["segments"])
            turns.append({"role": "user", "content": text})
    return turns


def held_out(tasks: Iterable[Task]) -> HeldOut:
    tasks = list(tasks)
    return HeldOut.of(
        [task.prompt for task in tasks if task.split != Split.TRAIN],
        [str(task.spec.get("answer", "")) for task in tasks if task.split != Split.TRAIN],
        [task.prompt for task in tasks if task.split == Split.TRAIN],
    )
