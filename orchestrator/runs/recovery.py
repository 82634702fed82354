"""Rollouts whose worker is gone.

Whoever starts a new attempt at a run is the only one that drives it, so what still says `running`
was driven by a worker that was killed, or stopped. Such a rollout ends as errored with what it had
done, since its episode cannot be continued, and a retry with its own trace takes its place.
"""

from __future__ import annotations

from dataclasses import asdict

from django.db import transaction
from django.utils import timezone

from orchestrator.environments.errors import Cause
from orchestrator.events.models import Stream
from orchestrator.events.services import Fence, NewEvent, append_many, hold_fence
from orchestrator.runs import queries
from orchestrator.runs.models import Rollout, RolloutState, Run


def replace_lost_rollouts(*, run: Run, fence: Fence) -> int:
    """Ends them and plans a retry for each; how many there were."""
    with transaction.atomic():
        hold_fence(fence)
        lost = list(
            Rollout.objects.filter(run=run, state=RolloutState.RUNNING)
            .select_related("task", "harness")
            .order_by("id")
        )
        batches: dict[int, list[NewEvent]] = {run.stream_id: []} if lost else {}
        for rollout in lost:
            n_steps, where = queries.progress_of(rollout)
            rollout.state, rollout.cause = RolloutState.ERRORED, Cause.WORKER_LOST.value
            rollout.message = f"The worker stopped {where}. No score."
            rollout.n_steps, rollout.is_replaced = n_steps, True
            rollout.ended_at = timezone.now()
            rollout.save()
            retry = Rollout.objects.create(
                run=run,
                stream=Stream.objects.create(project_id=run.project_id, kind="rollout"),
                harness=rollout.harness,
                task=rollout.task,
                replicate=rollout.replicate,
                seed=rollout.seed,
                retry_of=rollout,
            )
            ended = {**queries.ended_payload(rollout), "retry": retry.pk}
            batches[rollout.stream_id] = [NewEvent("rollout.ended", ended)]
            batches[run.stream_id] += [
                NewEvent("rollout", queries.rollout_row(rollout)),
                NewEvent("rollout", queries.rollout_row(retry)),
            ]
        if lost:
            tally = NewEvent("tally", asdict(queries.tally(run.pk)))
            batches[run.stream_id].append(tally)
            append_many(batches=batches)
    return len(lost)
