"""The jobs of this app: they write and read archives, and apply the rules of retention.

An export that is attempted again begins anew; an import takes its half project away and begins
anew. Both say at every batch how far they are, and end there when somebody cancels.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from orchestrator.blobs.keeping import blobs_in_use
from orchestrator.blobs.services import store
from orchestrator.blobs.types import BlobStore
from orchestrator.events.services import hold_fence
from orchestrator.jobs import services as jobs
from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.keeping import use
from orchestrator.keeping.archive import services
from orchestrator.keeping.archive.manifest import Manifest
from orchestrator.keeping.archive.reading import read_archive
from orchestrator.keeping.archive.rows import discard
from orchestrator.keeping.archive.writing import Report, write_archive
from orchestrator.keeping.errors import ArchiveInvalid
from orchestrator.keeping.models import (
    OPEN_STATES,
    RetentionRule,
    RetentionRun,
    Transfer,
    What,
    WorkState,
)
from orchestrator.keeping.retention import services as retention
from orchestrator.keeping.retention.looking import look
from orchestrator.projects.models import Project
from unpacking.limits import amount


@blobs_in_use("files of exports and imports")
def _files(of: BlobStore) -> list[str]:
    found = Transfer.objects.exclude(file_sha256="")
    return list(found.values_list("file_sha256", flat=True))


def record_unfinished(job: Job) -> None:
    """Whatever is half there is taken away by a job of its own: it may be a million rows."""
    transfer = Transfer.objects.filter(pk=job.spec["transfer_id"]).first()
    if transfer is None:
        return
    is_cancelled = job.state == JobState.CANCELLED
    state = WorkState.CANCELLED if is_cancelled else WorkState.FAILED
    services.end(transfer.pk, state, job.error)
    if transfer.draft_id is not None:
        jobs.enqueue(kind=services.DISCARD, spec={"transfer_id": transfer.pk})


@job_handler(services.EXPORT, on_unfinished=record_unfinished)
def export(ctx: JobContext) -> None:
    transfer = _started(ctx)
    if transfer is None or transfer.project is None:
        return
    with services.draft_folder() as folder:
        path = folder / "project.zip"
        manifest = write_archive(
            project=transfer.project,
            path=path,
            version=services.version(),
            with_checkpoints=transfer.with_checkpoints,
            report=_reporter(ctx, transfer),
        )
        blob = store().put_file(path)
    _finish(ctx, transfer, manifest, file_sha256=blob.sha256, size_bytes=blob.size)


@job_handler(services.IMPORT, on_unfinished=record_unfinished)
def bring(ctx: JobContext) -> None:
    transfer = _started(ctx)
    if transfer is None:
        return
    _take_away(transfer)
    with transaction.atomic():
        hold_fence(ctx.fence)
        project = Project.objects.create(name=transfer.name)
        Transfer.objects.filter(pk=transfer.pk).update(draft_id=project.pk)
        transfer.draft_id = project.pk
    try:
        with store().local(transfer.file_sha256) as path:
            manifest = read_archive(project=project, path=path, report=_reporter(ctx, transfer))
    except ArchiveInvalid as error:
        _take_away(transfer)
        services.end(transfer.pk, WorkState.FAILED, str(error), file_sha256="")
        return
    except Cancelled:
        _take_away(transfer)
        services.end(transfer.pk, WorkState.CANCELLED, file_sha256="")
        raise
    with transaction.atomic():
        services.open_to_its_owner(transfer, project)
        _finish(ctx, transfer, manifest, project=project, draft_id=None, file_sha256="")


@job_handler(services.DISCARD)
def take_away(ctx: JobContext) -> None:
    transfer = Transfer.objects.filter(pk=ctx.spec["transfer_id"]).first()
    if transfer is not None and transfer.has_ended:
        _take_away(transfer)


def _started(ctx: JobContext) -> Transfer | None:
    """None where it is gone or has ended."""
    with transaction.atomic():
        hold_fence(ctx.fence)
        found = Transfer.objects.filter(pk=ctx.spec["transfer_id"], state__in=OPEN_STATES)
        found.update(state=WorkState.RUNNING, done=0)
        return found.select_related("project", "created_by").first()


def _reporter(ctx: JobContext, transfer: Transfer) -> Report:
    def report(done: int, doing: str) -> None:
        ctx.check()
        Transfer.objects.filter(pk=transfer.pk, state=WorkState.RUNNING).update(
            done=done, doing=doing[:100]
        )

    return report


def _finish(ctx: JobContext, transfer: Transfer, manifest: Manifest, **changed: Any) -> None:
    rows = {name: count for name, count in manifest.rows.items() if count}
    summary = {
        "rows": rows,
        "endpoints_without_key": manifest.endpoints_without_key,
        "left_out": manifest.left_out,
        "version": manifest.version,
        "content": manifest.content,
    }
    total = sum(rows.values())
    with transaction.atomic():
        hold_fence(ctx.fence)
        services.end(
            transfer.pk, WorkState.COMPLETED, summary=summary, total=total, done=total, **changed
        )


def _take_away(transfer: Transfer) -> None:
    if transfer.draft_id is None:
        return
    project = Project.objects.filter(pk=transfer.draft_id).first()
    if project is not None:
        discard(project)
    Transfer.objects.filter(pk=transfer.pk).update(draft_id=None)
    transfer.draft_id = None


def record_look_unfinished(job: Job) -> None:
    is_cancelled = job.state == JobState.CANCELLED
    state = WorkState.CANCELLED if is_cancelled else WorkState.FAILED
    retention.end(job.spec["retention_run_id"], state, job.error)


@job_handler(retention.LOOK, on_unfinished=record_look_unfinished)
def retain(ctx: JobContext) -> None:
    with transaction.atomic():
        hold_fence(ctx.fence)
        asked = RetentionRun.objects.filter(pk=ctx.spec["retention_run_id"], state__in=OPEN_STATES)
        asked.update(state=WorkState.RUNNING)
        run = asked.select_related("project", "asked_by").first()
    if run is None:
        return
    found = []
    for rule in RetentionRule.objects.filter(project=run.project).order_by("what"):
        seen = look(rule, run, ctx.check)
        found.append(seen)
        if seen.removed:
            label = (
                f"{seen.removed:,} {What(seen.what).label.lower()}, {amount(seen.removed_bytes)}"
            )
            retention.record(run, [label])
            use.forget(run.project.pk)
    with transaction.atomic():
        hold_fence(ctx.fence)
        retention.end(run.pk, WorkState.COMPLETED, found=[each.as_json() for each in found])
