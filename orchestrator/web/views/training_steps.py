"""From a curve to rollouts: a step with its groups, and a group with its siblings side by side."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.runs.queries import tally
from orchestrator.trainings import queries as trainings
from orchestrator.web import training_access
from orchestrator.web.frame import Crumb, page
from orchestrator.web.views.training import crumbs
from training.models import TrainingRunKind


@login_required
@require_safe
def training_step(request: HttpRequest, project_id: int, job_id: int, step: int) -> HttpResponse:
    job = training_access.job_for_view(request.user, project_id, job_id)
    run = trainings.run_of_step(job, step)
    evaluation = trainings.run_of_step(job, step, TrainingRunKind.EVALUATION)
    if run is None and evaluation is None:
        raise Http404(f"Training job {job.pk} has no rollouts of step {step}.")
    steps, _, _ = trainings.told(job.stream_id)
    metrics = next((each for each in steps if each.get("step") == step), None)
    return page(
        request,
        "web/training_step.html",
        job.project,
        "train",
        [*crumbs(job), Crumb(f"Step {step}")],
        job=job,
        step=step,
        run=run,
        tally=None if run is None else tally(run.pk),
        groups=[] if run is None else trainings.step_groups(job, run, step),
        looks=trainings.LOOKS,
        evaluation=evaluation,
        evaluation_tally=None if evaluation is None else tally(evaluation.pk),
        metrics=metrics,
        newest=job.step,
    )


@login_required
@require_safe
def training_group(
    request: HttpRequest, project_id: int, job_id: int, step: int, task: str
) -> HttpResponse:
    job = training_access.job_for_view(request.user, project_id, job_id)
    view = trainings.group_of(job, step, task)
    if view is None:
        raise Http404(f"Step {step} of training job {job.pk} has no group {task}.")
    return page(
        request,
        "web/training_group.html",
        job.project,
        "train",
        [
            *crumbs(job),
            Crumb(f"Step {step}", reverse("web:training_step", args=[project_id, job_id, step])),
            Crumb(task),
        ],
        job=job,
        step=step,
        view=view,
        mode=trainings.advantage_of(job).mode.value,
    )
