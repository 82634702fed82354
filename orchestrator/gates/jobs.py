"""Job kinds of gates."""

from __future__ import annotations

from django.db import transaction

from orchestrator.gates.deciding import Reason, Verdict
from orchestrator.gates.machine import advance
from orchestrator.gates.models import Gate
from orchestrator.gates.telling import JOB_KIND, end_decided
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler


def record_unfinished(job: Job) -> None:
    if job.state != JobState.FAILED:
        return
    gate = Gate.objects.get(pk=job.spec["gate_id"])
    with transaction.atomic():
        end_decided(
            gate=gate, verdict=Verdict.INFRASTRUCTURE, reason=Reason.FAILED, sentence=job.error
        )


@job_handler(JOB_KIND, on_unfinished=record_unfinished)
def advance_gate(ctx: JobContext) -> None:
    advance(gate_id=ctx.spec["gate_id"], fence=ctx.fence)
