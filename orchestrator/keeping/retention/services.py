"""Rules and looks, asked for by people or by the daily round."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from orchestrator.jobs import services as jobs
from orchestrator.keeping.errors import KeepingRefused
from orchestrator.keeping.models import (
    OPEN_STATES,
    RetentionMark,
    RetentionRule,
    RetentionRun,
    What,
    WorkState,
)
from orchestrator.projects.access import require
from orchestrator.projects.models import AuditEntry, Project, Role, User
from orchestrator.runs.models import Purpose

LOOK = "keeping.retain"
MAX_DAYS = 3_650


def set_rule(
    *,
    actor: User,
    project: Project,
    what: str,
    days: int,
    grace_days: int = 7,
    purposes: Sequence[str] = (),
) -> RetentionRule:
    """Makes or changes the rule of a kind. Admins. Raises KeepingRefused."""
    require(actor, project, Role.ADMIN)
    if what not in What.values:
        raise KeepingRefused(f"what is {what!r:.40}; accepts {', '.join(What.values)}.")
    for name, value, least in (("days", days, 1), ("grace_days", grace_days, 0)):
        if not least <= value <= MAX_DAYS:
            raise KeepingRefused(f"{name} is {value}; accepts {least} to {MAX_DAYS:,}.")
    if odd := sorted(set(purposes) - set(Purpose.values)):
        raise KeepingRefused(f"purposes has {odd[0]!r:.40}; accepts {', '.join(Purpose.values)}.")
    if purposes and what not in (What.TRACES, What.RUNS):
        raise KeepingRefused("purposes are those of runs: only for traces and runs.")
    rule = RetentionRule.objects.filter(project=project, what=what).first()
    rule = rule or RetentionRule(project=project, what=what)
    rule.days, rule.grace_days, rule.purposes = days, grace_days, sorted(set(purposes))
    rule.changed_by = actor
    rule.save()
    return rule


def remove_rule(*, actor: User, rule: RetentionRule) -> None:
    """What it has marked stays. Admins."""
    require(actor, rule.project, Role.ADMIN)
    with transaction.atomic():
        RetentionMark.objects.filter(
            project=rule.project, what=rule.what, kept_at__isnull=True
        ).delete()
        rule.delete()


def start_look(*, actor: User | None, project: Project, is_dry: bool) -> RetentionRun:
    """Queues it. Admins; None is the daily round. Raises KeepingRefused without a rule."""
    if actor is not None:
        require(actor, project, Role.ADMIN)
    if not RetentionRule.objects.filter(project=project).exists():
        raise KeepingRefused("The project has no rule of retention. Set one first.")
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        under_way = RetentionRun.objects.filter(
            project=project, state__in=OPEN_STATES, is_dry=is_dry
        ).first()
        if under_way is not None:
            return under_way
        run = RetentionRun.objects.create(project=project, is_dry=is_dry, asked_by=actor)
        run.job = jobs.enqueue(kind=LOOK, spec={"retention_run_id": run.pk}, max_attempts=3)
        run.save(update_fields=["job"])
        return run


def keep(*, actor: User, project: Project, run: RetentionRun | None = None) -> int:
    """Keeps all that is marked, or what one look has marked; how many. Editors.

    No later look marks them again, whatever the rule says.
    """
    require(actor, project, Role.EDITOR)
    found = RetentionMark.objects.filter(project=project, kept_at__isnull=True)
    found = found if run is None else found.filter(run=run)
    return found.update(kept_by=actor, kept_at=timezone.now())


def let_go(*, actor: User, project: Project) -> int:
    """Takes back every keeping by hand; how many. Admins."""
    require(actor, project, Role.ADMIN)
    found = RetentionMark.objects.filter(project=project, kept_at__isnull=False)
    count = found.count()
    found.delete()
    return count


def end(run_id: int, state: WorkState, error: str = "", **changed: object) -> None:
    RetentionRun.objects.filter(pk=run_id, state__in=OPEN_STATES).update(
        state=state, error=error, ended_at=timezone.now(), **changed
    )


def record(run: RetentionRun, removed: Sequence[str]) -> None:
    """Into the audit log: nobody's request, so what took it away is named as the user."""
    AuditEntry.objects.create(
        project=run.project,
        user=run.asked_by,
        username=run.asked_by.get_username() if run.asked_by else "retention",
        action="keeping.retain",
        method="JOB",
        path=f"retention run {run.pk}"[:400],
        status=200,
        changes=[
            {"kind": "retention", "id": str(run.pk), "label": each, "what": "deleted", "fields": {}}
            for each in removed
        ],
    )


def ask_daily() -> None:
    """For the sweep: a look a day at each project with a rule."""
    today = timezone.now().date()
    recent = RetentionRun.objects.filter(
        project=OuterRef("project"), is_dry=False, created_at__date=today
    )
    rules = RetentionRule.objects.filter(~Exists(recent)).order_by("project").distinct()
    for project_id in set(rules.values_list("project_id", flat=True)):
        start_look(actor=None, project=Project.objects.get(pk=project_id), is_dry=False)
