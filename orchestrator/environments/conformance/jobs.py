"""The job that makes a check: a server, one grader after the other, each result stored at once.

Started again after a crash it goes on with the graders that have no result.
"""

from __future__ import annotations

import asyncio

from orchestrator.environments.conformance import services
from orchestrator.environments.conformance.finding import Status, failed, quoted, untold
from orchestrator.environments.conformance.graders import GRADERS
from orchestrator.environments.conformance.preparing import served, subject_of
from orchestrator.environments.conformance.running import DEADLINE_S, Graded, grade
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.models import CheckState, EnvironmentCheck
from orchestrator.environments.servers.spec import Server
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler

RESETS_PER_GRADER = 40
"""At most about so many episodes does a grader play: what slow resets add to its deadline."""
LONGEST_S = 600.0


def record_unfinished(job: Job) -> None:
    state = CheckState.CANCELLED if job.state == JobState.CANCELLED else CheckState.FAILED
    services.end_unfinished_check(check_id=job.spec["check_id"], state=state, error=job.error)


@job_handler(services.JOB_KIND, on_unfinished=record_unfinished)
def check(ctx: JobContext) -> None:
    run = EnvironmentCheck.objects.select_related("version__environment").get(
        pk=ctx.spec["check_id"]
    )
    services.mark_running(check=run, fence=ctx.fence)
    try:
        with served(run.version) as (spec, server):
            subject = subject_of(run.version, spec, server)
            for check_id in _missing(run):
                ctx.check()
                _revive(server)
                graded = asyncio.run(
                    grade(GRADERS[check_id], subject, deadline_s=_deadline_s(run), watch=ctx.check)
                )
                services.store_result(check=run, check_id=check_id, graded=graded, fence=ctx.fence)
                ctx.progress()
                if check_id == "startup" and graded.finding.status is Status.FAIL:
                    _give_up(run, ctx, graded.finding.evidence)
                    break
    except (ServerStartError, ValueError) as exc:
        _give_up(run, ctx, quoted(str(exc), 500))
    services.finish_check(check=run, fence=ctx.fence)


def _missing(run: EnvironmentCheck) -> list[str]:
    known = set(run.results.values_list("check_id", flat=True))
    return [check_id for check_id in GRADERS if check_id not in known]


def _revive(server: Server) -> None:
    """A grader may have brought the server down; its neighbours still get one."""
    if not server.is_alive:
        server.wait_for_ready(server.start_container())


def _deadline_s(run: EnvironmentCheck) -> float:
    measured = run.results.filter(check_id="startup").values_list("measured", flat=True).first()
    reset_s = float((measured or {}).get("reset_s", 0.0))
    return min(LONGEST_S, DEADLINE_S + RESETS_PER_GRADER * reset_s)


def _give_up(run: EnvironmentCheck, ctx: JobContext, reason: str) -> None:
    """No episode starts: that is the finding; everything else could not be asked."""
    for check_id in _missing(run):
        finding = failed(reason) if check_id == "startup" else untold("No episode starts.")
        services.store_result(
            check=run, check_id=check_id, graded=Graded(finding, 0.0), fence=ctx.fence
        )
