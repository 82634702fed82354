from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.climbs.learning import notes_on
from orchestrator.grading.hacking import alarms_of
from orchestrator.projects.access import project_for_view
from orchestrator.web import access, queries
from orchestrator.web.frame import Crumb, page
from orchestrator.web.ladder import training_curves


@login_required
@require_safe
def training_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    jobs = queries.training_jobs_of(project.pk)
    return page(request, "web/training.html", project, "train", [Crumb("Train")], jobs=jobs)


@login_required
@require_safe
def training_detail(request: HttpRequest, project_id: int, job_id: int) -> HttpResponse:
    job = access.training_job_for_view(request.user, project_id, job_id)
    last_seq = job.stream.last_seq
    climb = queries.climb_of_training(job.pk)
    steps = queries.training_steps(job.stream_id)
    if not steps and climb is not None:
        steps = queries.training_steps(climb.stream_id)
    return page(
        request,
        "web/training_job.html",
        job.project,
        "train",
        [
            Crumb("Train", reverse("web:training", args=[project_id])),
            Crumb(f"Training job {job.pk}", copy=str(job.pk)),
        ],
        job=job,
        climb=climb,
        reward_notes=notes_on(climb) if climb is not None else [],
        checkpoints=list(job.checkpoints.all()),
        alarms=alarms_of(climb.pk) if climb is not None else [],
        curves=training_curves(steps, job.total_steps),
        last_seq=last_seq,
    )
