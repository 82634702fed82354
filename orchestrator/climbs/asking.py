"""How a climb asks for a run: under a key, within its budget, counted on its rung."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from optimizer.models import Budget
from orchestrator.climbs.budget import ROLLOUTS, open_budget, reserve, settle
from orchestrator.climbs.learning import left_out_for, words
from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb, ClimbRun, Rung, RungKind
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.jobs.errors import Cancelled
from orchestrator.runs.models import Run
from orchestrator.runs.seeds import derive_seed
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run


def ask_for_run(
    *,
    climb: Climb,
    rung: Rung,
    key: str,
    label: str,
    purpose: str,
    plan: Sequence[PlannedRollout],
    seed_parts: Sequence[object],
    fence: Fence,
    adapter_name: str = "",
    adapter_path: str = "",
    sampling: dict[str, Any] | None = None,
    queue_job: bool = True,
) -> Run:
    """The run of this key, made and queued when it does not exist.

    Raises:
        BudgetExceeded: the plan does not fit the climb's cap on rollouts.
        LeaseLost: another attempt moves the climb.
        Cancelled: the climb ended meanwhile; nothing was made.
    """
    # Of the first rung of its kind as it always was; a second harness rung has keys of its own.
    is_another = rung.kind == RungKind.HARNESS and rung.index > 1
    of_rung = f"{rung.kind}-{rung.index}" if is_another else rung.kind
    full_key = f"climb-{climb.pk}-{of_rung}-{key}"
    existing = Run.objects.filter(key=full_key).first()
    if existing is not None:
        return start_run(run=existing) if queue_job and not existing.has_ended else existing
    settings = ClimbSettings.from_json(climb.config)
    with transaction.atomic():
        hold_fence(fence)
        # A climb may be cancelled between the look at its state and this; nobody would end the run.
        if not Climb.objects.filter(pk=climb.pk).exclude(state__in=ENDED_CLIMB_STATES).exists():
            raise Cancelled(f"{climb.name} has ended")
        reserve(
            budget=budget_of(climb, settings), key=full_key, amount=len(plan), phase=climb.phase
        )
        run = create_run(
            key=full_key,
            plan=plan,
            spec=RunSpec(
                project=climb.project,
                purpose=purpose,
                label=label,
                environment_version=climb.environment_version,
                rubric_version=climb.rubric_version,
                model=climb.model,
                seed=derive_seed(climb.seed, *seed_parts),
                adapter_name=adapter_name,
                adapter_path=adapter_path,
                sampling=sampling,
                concurrency=settings.concurrency,
            ),
        )
        left_out, is_news = left_out_for(climb, purpose)
        ClimbRun.objects.create(
            climb=climb, run=run, rung_index=rung.index, phase=climb.phase, left_out=left_out
        )
        append(
            stream_id=climb.stream_id,
            items=[
                *([NewEvent("decision", {"text": words(climb, left_out)})] if is_news else []),
                NewEvent(
                    "run",
                    {"id": run.pk, "phase": climb.phase, "label": label, "rung": rung.index},
                ),
            ],
            fence=fence,
        )
        if queue_job:
            start_run(run=run)
    return run


def budget_of(climb: Climb, settings: ClimbSettings) -> Budget:
    return open_budget(
        scope=f"climb:{climb.pk}", role="agent", unit=ROLLOUTS, cap=settings.max_rollouts
    )


def settle_run(*, climb: Climb, run: Run) -> None:
    """Books what a run that has ended really used: rollouts that never started are free again."""
    used = run.rollouts.filter(attempt__gt=0).count()
    settings = ClimbSettings.from_json(climb.config)
    settle(budget=budget_of(climb, settings), key=run.key or "", amount=used)
