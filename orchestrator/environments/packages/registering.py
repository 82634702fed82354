"""The job that makes an environment of a source.

Prepare (install, pull), start a server exactly as runs will, reset episodes on it, and only then
create environment and version, in one transaction with the end of the registration. What goes wrong
with the source is the registration's result, not a failed job; it is not tried again by itself.
A worker that dies is followed by another, which starts anew: installations that are complete are
found again by their digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from orchestrator.blobs import sharing
from orchestrator.environments.conformance.finding import Status
from orchestrator.environments.conformance.repeating import episode_isolation
from orchestrator.environments.conformance.running import grade
from orchestrator.environments.conformance.subject import Exercise, Subject
from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import (
    Environment,
    EnvironmentVersion,
    RegistrationState,
    SourceRegistration,
)
from orchestrator.environments.packages.capacity import measure_capacity, slots_asked
from orchestrator.environments.packages.install import share_installation
from orchestrator.environments.packages.preparing import Prepared, prepare
from orchestrator.environments.probe import probe
from orchestrator.environments.resources import Resources
from orchestrator.environments.services import NewTask, create_version
from orchestrator.environments.serving import data_folder
from orchestrator.environments.session import EpisodeSettings
from orchestrator.events.services import append
from orchestrator.events.types import NewEvent
from orchestrator.jobs.fencing import Fence, hold_fence
from orchestrator.jobs.registry import JobContext

START_TIMEOUT_S = 120.0
"""First resets of real environments take 15 s and more, on a busy machine several times that."""
MESSAGE_CHARS = 4000


@dataclass
class Reporter:
    """Tells the stream what is done at the moment, and stops when the job should."""

    registration: SourceRegistration
    ctx: JobContext
    _last: str = field(default="")

    def __call__(self, step: str) -> None:
        self.ctx.check()
        if step == self._last:
            return
        self._last = step
        with transaction.atomic():
            hold_fence(self.ctx.fence)
            SourceRegistration.objects.filter(pk=self.registration.pk).update(
                step=step[:200], state=RegistrationState.RUNNING
            )
            append(
                stream_id=self.registration.stream_id,
                items=[NewEvent("registration.step", {"text": step})],
                fence=self.ctx.fence,
            )


def execute_registration(*, registration: SourceRegistration, ctx: JobContext) -> None:
    if registration.has_ended:
        return
    report = Reporter(registration, ctx)
    try:
        prepared = prepare(
            kind=registration.kind,
            source=registration.source,
            data=data_folder(),
            report=report,
            check=ctx.check,
        )
        proof = _prove(registration, prepared, report)
    except (SourceError, ServerStartError) as exc:
        end_registration(
            registration=registration,
            state=RegistrationState.FAILED,
            message=str(exc),
            fence=ctx.fence,
        )
        return
    _finish(registration, prepared, proof, ctx.fence)


def _prove(
    registration: SourceRegistration, prepared: Prepared, report: Callable[[str], None]
) -> dict[str, Any]:
    """A real server with real episodes; what they showed, for the version's source.

    `ServerStartError` with what the server printed.
    """
    report("Starting a server and resetting an episode")
    name = f"registration-{registration.pk}"
    resources = Resources.from_json(registration.resources)
    spec = KINDS[registration.kind].server(
        name=name,
        source=prepared.source,
        resources=resources,
        specs=[],
        data=data_folder(),
    )
    server = spec.make(data_folder() / name)
    try:
        server.wait_for_ready(server.start_container(), START_TIMEOUT_S)
        report("Measuring what a seed does")
        settings = EpisodeSettings(reset_timeout_s=START_TIMEOUT_S, slot_wait_s=10)
        result = asyncio.run(
            probe(server.base_url, reset=prepared.source.get("reset"), settings=settings)
        )
        if not result.is_usable:
            raise SourceError(f"no episode starts: {result.message}")
        isolation = ""
        if prepared.source.get("raise_capacity"):
            report("Checking that episodes side by side do not touch one another")
            isolation = _isolated(registration, prepared, server.base_url, settings)
        report("Counting the episodes that it takes at a time")
        asked = slots_asked(resources)
        measured = asyncio.run(measure_capacity(server.base_url, asked))
    finally:
        server.close()
    return {
        "seed": result.seed.value,
        "is_random": result.is_random,
        "reset_ms": result.reset_ms,
        "capacity": {"asked": asked, "measured": measured},
        **({"isolation": isolation} if isolation else {}),
    }


def _isolated(
    registration: SourceRegistration, prepared: Prepared, base_url: str, settings: EpisodeSettings
) -> str:
    """What was measured; `SourceError` unless it speaks for more episodes than the code promises.

    The author's flag in the code is a promise; in its place there must be a proof.
    """
    exercise = Exercise(
        "default", "", reset=dict(prepared.source.get("reset") or {}), settings=settings
    )
    subject = Subject(base_url, KINDS[registration.kind], (exercise,))
    finding = asyncio.run(grade(episode_isolation, subject)).finding
    if finding.status is not Status.PASS:
        raise SourceError(
            f"raise_capacity: it is not shown that episodes of one server are independent: "
            f"{finding.evidence} Register it without, and let it run on several servers."
        )
    return finding.evidence


def _finish(
    registration: SourceRegistration, prepared: Prepared, proof: Mapping[str, Any], fence: Fence
) -> None:
    taken = share_installation(prepared.source, data_folder())
    with transaction.atomic():
        hold_fence(fence)
        if taken is not None:
            sharing.record(taken)
        environment, is_new = Environment.objects.get_or_create(
            project_id=registration.project_id,
            slug=slug_of(registration.name),
            defaults={
                "name": registration.name,
                "kind": registration.kind,
                "description": prepared.summary,
            },
        )
        if is_new:
            version = create_version(
                environment=environment,
                source={**prepared.source, **proof},
                tasks=[_first_task(prepared.source)],
                settings=prepared.settings,
                resources=registration.resources,
                description=registration.description,
                created_by=registration.created_by,
            )
            end_registration(
                registration=registration,
                state=RegistrationState.DONE,
                version=version,
                fence=fence,
            )
            return
    end_registration(
        registration=registration,
        state=RegistrationState.FAILED,
        message=f"name: the project already has an environment named {registration.name}",
        fence=fence,
    )


def slug_of(name: str) -> str:
    return slugify(name)[:60] or "environment"


def _first_task(source: Mapping[str, Any]) -> NewTask:
    return NewTask(
        key="default",
        split="test",
        prompt="Act in the environment.",
        reset=dict(source.get("reset") or {}),
    )


def end_registration(
    *,
    registration: SourceRegistration,
    state: RegistrationState,
    message: str = "",
    version: EnvironmentVersion | None = None,
    fence: Fence | None = None,
) -> None:
    """Ends one that is open; with its last event. Safe to call twice."""
    message = message[:MESSAGE_CHARS]
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        ended = (
            SourceRegistration.objects.filter(pk=registration.pk)
            .filter(state__in=(RegistrationState.QUEUED, RegistrationState.RUNNING))
            .update(state=state, message=message, version=version, step="", ended_at=timezone.now())
        )
        if ended:
            append(
                stream_id=registration.stream_id,
                items=[
                    NewEvent(
                        "registration.ended",
                        {
                            "state": state.value,
                            "message": message,
                            "environment": version.environment_id if version else None,
                            "version": version.pk if version else None,
                        },
                    )
                ],
                fence=fence,
            )
