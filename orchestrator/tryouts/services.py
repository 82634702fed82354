"""What changes tryouts: start, ask, close, start again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from orchestrator.environments.models import EnvironmentVersion, Task
from orchestrator.events.services import (
    Fence,
    NewEvent,
    append,
    create_stream,
    hold_fence,
)
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.tryouts.errors import TryoutRefused
from orchestrator.tryouts.limits import LONGEST_PLAY, MOST_PENDING, PER_PROJECT, in_all
from orchestrator.tryouts.models import (
    LIVE_STATES,
    CommandKind,
    CommandState,
    Tryout,
    TryoutCommand,
    TryoutState,
)
from orchestrator.tryouts.sealed import refuse_sealed_reset, refuse_sealed_task
from rubrics.models import RubricVersion

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile("[\ud800-\udfff]")
STREAM = "tryout"
"""Kind of the streams; only editors may read them (`events.access`)."""


def start_tryout(
    *,
    actor: User,
    version: EnvironmentVersion,
    task: Task | None,
    params: Mapping[str, Any],
    rubric_version: RubricVersion | None = None,
) -> Tryout:
    """A tryout whose first command is the reset. The actor's earlier one of the environment ends.

    Raises:
        TryoutRefused: all slots are taken, or the task is sealed; says what to do.
    """
    project = version.environment.project
    require(actor, project, Role.EDITOR)
    _refuse_unstorable(params)
    if task is not None:
        refuse_sealed_task(task)
    refuse_sealed_reset(version, params, task=task)
    with transaction.atomic():
        earlier = Tryout.objects.filter(
            user=actor, version__environment=version.environment, state__in=LIVE_STATES
        )
        for tryout in earlier.select_related("job"):
            close_tryout(actor=actor, tryout=tryout)
        _refuse_without_slot(project)
        made = Tryout.objects.create(
            version=version,
            user=actor,
            stream=create_stream(project=project, kind=STREAM),
            task=task,
            rubric_version=rubric_version,
        )
        _command(made, CommandKind.RESET, {"params": dict(params)})
        _host(made)
    return made


def _refuse_without_slot(project: Project) -> None:
    """Needs the transaction that takes the slot."""
    # A lock on PostgreSQL, where two starts may run at once; SQLite has one writer.
    Project.objects.select_for_update().filter(pk=project.pk).first()
    live = Tryout.objects.filter(state__in=LIVE_STATES)
    own = list(live.filter(version__environment__project=project).select_related("user")[:10])
    if len(own) >= PER_PROJECT:
        names = ", ".join(sorted({tryout.user.username for tryout in own}))
        raise TryoutRefused(
            f"{len(own)} of {PER_PROJECT} try-outs of this project are open ({names}). Close one, "
            "or wait: an unused one closes after 10 minutes."
        )
    if live.count() >= in_all():
        raise TryoutRefused(
            f"{in_all()} try-outs are open on this installation, which is all that its workers "
            "allow beside runs. Wait for one to close, or raise SWITCHBACK_WORKER_SLOTS."
        )


def _refuse_unstorable(value: Mapping[str, Any]) -> None:
    """A database of either kind must give back what was sent, or a replay would send other text."""
    text = json.dumps(value, ensure_ascii=False)
    if _NUL.search(text) or _SURROGATE.search(text):
        raise TryoutRefused("NUL characters and lone surrogates cannot be stored. Leave them out.")


def _host(tryout: Tryout) -> None:
    tryout.job = jobs.enqueue(
        kind="tryouts.host",
        queue="rollouts",
        spec={"tryout_id": tryout.pk},
        # Each start has its own: the job before it, if any, names it.
        key=f"tryout-{tryout.pk}-after-{tryout.job_id or 0}",
    )
    tryout.save(update_fields=["job"])


def _command(tryout: Tryout, kind: CommandKind, payload: dict[str, Any]) -> TryoutCommand:
    return TryoutCommand.objects.create(tryout=tryout, kind=kind, payload=payload)


# --- what a person asks for ----------------------------------------------------------------------


def ask_reset(*, actor: User, tryout: Tryout, params: Mapping[str, Any]) -> TryoutCommand:
    """`TryoutRefused` for parameters that start a sealed task."""
    _refuse_unstorable(params)
    refuse_sealed_reset(tryout.version, params, task=tryout.task)
    return _ask(actor, tryout, CommandKind.RESET, {"params": dict(params)})


def ask_step(*, actor: User, tryout: Tryout, action: Mapping[str, Any]) -> TryoutCommand:
    _refuse_unstorable(action)
    return _ask(actor, tryout, CommandKind.STEP, {"action": dict(action)})


def ask_undo(*, actor: User, tryout: Tryout, steps: int = 1) -> TryoutCommand:
    if not 1 <= steps <= LONGEST_PLAY:
        raise TryoutRefused("Undo at least one step.")
    return _ask(actor, tryout, CommandKind.UNDO, {"steps": steps})


def ask_state(*, actor: User, tryout: Tryout) -> TryoutCommand:
    return _ask(actor, tryout, CommandKind.STATE, {})


def choose_rubric(*, actor: User, tryout: Tryout, rubric_version: RubricVersion) -> TryoutCommand:
    """Grades the steps so far by another rubric of the project."""
    with transaction.atomic():
        asked = _ask(actor, tryout, CommandKind.GRADE, {})
        tryout.rubric_version = rubric_version
        tryout.save(update_fields=["rubric_version"])
    return asked


def restart_tryout(*, actor: User, tryout: Tryout) -> None:
    """A lost or ended tryout again: a fresh session, the same reset, all steps.

    `TryoutRefused` where no slot is free. A live one stays as it is.
    """
    project = tryout.version.environment.project
    require(actor, project, Role.EDITOR)
    with transaction.atomic():
        others = Tryout.objects.filter(
            user=actor,
            version__environment=tryout.version.environment,
            state__in=LIVE_STATES,
        ).exclude(pk=tryout.pk)
        for other in others.select_related("job"):
            close_tryout(actor=actor, tryout=other)
        if tryout.is_live:
            return
        _refuse_without_slot(project)
        changed = (
            Tryout.objects.filter(pk=tryout.pk)
            .exclude(state__in=LIVE_STATES)
            .update(state=TryoutState.STARTING, message="", ended_at=None)
        )
        if not changed:
            return
        tryout.refresh_from_db()
        first = tryout.commands.filter(kind=CommandKind.RESET).order_by("id").first()
        was_reset = tryout.commands.filter(kind=CommandKind.RESET, state=CommandState.DONE).exists()
        if was_reset or first is None:
            _command(tryout, CommandKind.REPLAY, {})
        else:
            _command(tryout, CommandKind.RESET, first.payload)
        _host(tryout)


def close_tryout(*, actor: User, tryout: Tryout) -> None:
    """Ends it at once; its job notices and lets the session go. Safe to repeat."""
    require(actor, tryout.version.environment.project, Role.EDITOR)
    with transaction.atomic():
        if end_tryout(tryout=tryout, reason="closed", message="Closed.", fence=None):
            job = tryout.job
            if job is not None:
                jobs.cancel(job=job)


def _ask(actor: User, tryout: Tryout, kind: CommandKind, payload: dict[str, Any]) -> TryoutCommand:
    """`TryoutRefused` if it is not open any more, or answers too slowly."""
    require(actor, tryout.version.environment.project, Role.EDITOR)
    with transaction.atomic():
        # Locked: one that ends at this very moment would leave the command waiting for ever.
        live = Tryout.objects.select_for_update().filter(pk=tryout.pk, state__in=LIVE_STATES)
        if live.first() is None:
            raise TryoutRefused("The try-out is not open any more. Start it again to go on.")
        pending = TryoutCommand.objects.filter(tryout=tryout, state=CommandState.PENDING)
        if pending.count() >= MOST_PENDING:
            raise TryoutRefused(f"{MOST_PENDING} commands are waiting. Wait for their answers.")
        return _command(tryout, kind, payload)


# --- how it ends ---------------------------------------------------------------------------------


def end_tryout(*, tryout: Tryout, reason: str, message: str, fence: Fence | None) -> bool:
    """`reason`: closed, idle or limit. False if it was not live."""
    event = NewEvent("tryout.ended", {"reason": reason, "message": message})
    return _finish(tryout, TryoutState.ENDED, message, event, fence)


def lose_tryout(*, tryout: Tryout, message: str, fence: Fence | None) -> bool:
    """The session is gone, or never came to be; `message` says how. False if it was not live."""
    event = NewEvent("tryout.lost", {"message": message})
    return _finish(tryout, TryoutState.LOST, message, event, fence)


def _finish(
    tryout: Tryout, state: TryoutState, message: str, event: NewEvent, fence: Fence | None
) -> bool:
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        changed = Tryout.objects.filter(pk=tryout.pk, state__in=LIVE_STATES).update(
            state=state, message=message, ended_at=timezone.now()
        )
        if changed:
            TryoutCommand.objects.filter(tryout=tryout, state=CommandState.PENDING).update(
                state=CommandState.REFUSED, reason=message
            )
            append(stream_id=tryout.stream_id, items=[event], fence=fence)
    tryout.refresh_from_db(fields=["state", "message", "ended_at"])
    return bool(changed)
