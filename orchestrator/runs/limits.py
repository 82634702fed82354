"""What a project may use in a day: rollouts and dollars; a full store refuses them as well.

A day is one of UTC. Rollouts count when they are planned, whatever becomes of them, so that a run
is refused before it starts and never cut in the middle; dollars count when a rollout reports them,
so that runs under way may pass the cap by what they cost. People hear the refusal; searches, climbs
and trainings pause with it and go on when somebody lets them.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from django.db.models import Q, Sum
from django.utils import timezone

from orchestrator.prepared import Prepared
from orchestrator.projects import storage
from orchestrator.projects.access import project_for_admin
from orchestrator.projects.models import ProjectLimits, User
from orchestrator.runs.models import Rollout

_held_caps = Prepared(
    lambda project: ProjectLimits.objects.select_for_update().filter(project=project), project=int
)


class LimitReached(RuntimeError):
    """A cap of the project's day; the text names it, what is used, and who can raise it."""


@dataclass(frozen=True)
class DayUse:
    """Of one project, today."""

    rollouts: int
    usd: float
    rollouts_cap: int | None
    usd_cap: float | None


def use_today(project_id: int) -> DayUse:
    caps = ProjectLimits.objects.filter(project_id=project_id).first()
    since = _midnight()
    rollouts = Rollout.everything.filter(run__project_id=project_id)
    planned = rollouts.filter(run__created_at__gte=since)
    # By the run first: few are open or ended today, and rollouts have no index by time.
    alive = Q(run__ended_at=None) | Q(run__ended_at__gte=since)
    spent = rollouts.filter(alive, ended_at__gte=since)
    return DayUse(
        rollouts=planned.count(),
        usd=spent.aggregate(usd=Sum("cost_usd"))["usd"] or 0.0,
        rollouts_cap=None if caps is None else caps.rollouts_per_day,
        usd_cap=None if caps is None else caps.usd_per_day,
    )


def check(project_id: int, n_rollouts: int) -> None:
    """Raises LimitReached if so many more are not allowed today. Needs a transaction.

    The row of the caps is held, so that two runs that start at once cannot both take what is left.
    """
    caps = _held_caps.first(project=project_id)
    if caps is None:
        return
    try:
        storage.check(project_id)
    except storage.StorageFull as full:
        raise LimitReached(str(full)) from full
    if caps.rollouts_per_day is None and caps.usd_per_day is None:
        return
    use = use_today(project_id)
    until = "It frees at 00:00 UTC; an admin of the project can raise it under Settings, Limits."
    if caps.rollouts_per_day is not None and use.rollouts + n_rollouts > caps.rollouts_per_day:
        raise LimitReached(
            f"{n_rollouts:,} rollouts are asked for; the project may start "
            f"{caps.rollouts_per_day:,} a day and has started {use.rollouts:,} today. {until}"
        )
    if caps.usd_per_day is not None and use.usd >= caps.usd_per_day:
        raise LimitReached(
            f"The project may spend ${caps.usd_per_day:,.2f} a day on rollouts and has spent "
            f"${use.usd:,.2f} today. {until}"
        )


def set_limits(
    *, actor: User, project_id: int, rollouts_per_day: int | None, usd_per_day: float | None
) -> ProjectLimits:
    """None takes a cap away. Only for admins. Raises ValueError below 0."""
    project = project_for_admin(actor, project_id)
    for cap in (rollouts_per_day, usd_per_day):
        if cap is not None and cap < 0:
            raise ValueError("A cap is a number from 0 up, or none.")
    caps = ProjectLimits.objects.filter(project=project).first() or ProjectLimits(project=project)
    caps.rollouts_per_day, caps.usd_per_day = rollouts_per_day, usd_per_day
    caps.save()
    return caps


def _midnight() -> datetime.datetime:
    return (
        timezone.now().astimezone(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    )
