"""The job kind of proposals."""

from __future__ import annotations

from optimizer.models import Proposal
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.proposing import services
from orchestrator.proposing.answering import answer_proposal
from orchestrator.proposing.purse import refund_all


def record_unfinished(job: Job) -> None:
    """A proposer that broke ends its proposal, never the search."""
    proposal = Proposal.objects.filter(pk=job.spec["proposal_id"]).first()
    if proposal is None:
        return
    is_cancelled = job.state == JobState.CANCELLED
    reason = "The proposer was cancelled." if is_cancelled else f"The proposer broke: {job.error}"
    refund_all(proposal)
    services.end(proposal, state=Proposal.State.FAILED, reason=reason)


@job_handler(services.JOB_KIND, on_unfinished=record_unfinished)
def ask_proposer(ctx: JobContext) -> None:
    answer_proposal(ctx)
