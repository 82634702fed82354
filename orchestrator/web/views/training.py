"""Train: the queue with its devices, one job with its charts, and its alarms."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.climbs.learning import notes_on
from orchestrator.grading.hacking import alarms_of
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.trainings import queries as trainings
from orchestrator.trainings import services
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.handover import handovers_of
from orchestrator.trainings.remote import connection_of
from orchestrator.web import access, queries, training_access
from orchestrator.web.frame import Crumb, page
from orchestrator.web.ladder import training_curves
from orchestrator.web.training_board import board
from orchestrator.web.training_facts import facts
from orchestrator.web.training_form import QuotaForm
from training.models import TrainingJob

ACTIONS = {
    "pause": services.pause_training,
    "resume": services.resume_training,
    "cancel": services.cancel_training,
}
SAID = {
    "pause": "The training pauses after the step in hand and gives its device back.",
    "resume": "The training goes on where it stopped, as soon as a device is free.",
    "cancel": "The training is being cancelled. Its checkpoints stay.",
}


@login_required
@require_safe
def training_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    queue = trainings.queue_of(project.pk)
    quota = queue.quota
    minutes = None
    if quota is not None and quota.device_s_per_day is not None:
        minutes = quota.device_s_per_day // 60
    return page(
        request,
        "web/training.html",
        project,
        "train",
        [Crumb("Train")],
        jobs=queries.training_jobs_of(project.pk),
        queue=queue,
        sweeps=list(trainings.sweeps_of(project.pk)[:20]),
        quota_minutes=minutes,
        quota_form=QuotaForm(
            initial={
                "max_running": None if quota is None else quota.max_running,
                "minutes": minutes,
            }
        ),
    )


@login_required
@require_safe
def training_detail(request: HttpRequest, project_id: int, job_id: int) -> HttpResponse:
    job = access.training_job_for_view(request.user, project_id, job_id)
    last_seq = job.stream.last_seq
    climb = queries.climb_of_training(job.pk)
    steps, evaluations, attempts = trainings.told(job.stream_id)
    if not steps and climb is not None:
        steps = queries.training_steps(climb.stream_id)
    return page(
        request,
        "web/training_job.html",
        job.project,
        "train",
        crumbs(job, last=True),
        job=job,
        climb=climb,
        reward_notes=notes_on(climb) if climb is not None else [],
        checkpoints=trainings.checkpoints_of(job),
        alarms=alarms_of(climb.pk) if climb is not None else [],
        training_alarms=trainings.alarms_of(job),
        attempts=attempts,
        connection=connection_of(job),
        handovers=handovers_of(job),
        board=board(steps, evaluations, job.total_steps),
        curves=training_curves(steps, job.total_steps),
        groups=trainings.group_map(trainings.groups_of(job)),
        looks=trainings.LOOKS,
        estimate=job.estimate,
        facts=facts(job.manifest),
        why=_why_it_waits(job),
        last_seq=last_seq,
    )


def _why_it_waits(job: TrainingJob) -> str:
    if job.has_ended or job.device:
        return ""
    return trainings.why_it_waits(job)


def train_crumb(project_id: int) -> Crumb:
    return Crumb("Train", reverse("web:training", args=[project_id]))


def crumbs(job: TrainingJob, *, last: bool = False) -> list[Crumb]:
    url = "" if last else reverse("web:training_job", args=[job.project_id, job.pk])
    return [
        train_crumb(job.project_id),
        Crumb(
            str(job).capitalize() if not job.name else job.name, url, str(job.pk) if last else ""
        ),
    ]


@login_required
@require_POST
def training_action(
    request: HttpRequest, project_id: int, job_id: int, action: str
) -> HttpResponse:
    job = training_access.job_for_edit(request.user, project_id, job_id)
    try:
        ACTIONS[action](actor=request.user, job=job)  # type: ignore[arg-type] # login_required
    except TrainingRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, SAID[action])
    return redirect("web:training_job", project_id, job_id)


@login_required
@require_POST
def training_priority(request: HttpRequest, project_id: int, job_id: int) -> HttpResponse:
    job = training_access.job_for_edit(request.user, project_id, job_id)
    given = request.POST.get("priority", "")
    try:
        services.set_priority(
            actor=request.user,  # type: ignore[arg-type] # login_required
            job=job,
            priority=int(given) if given.lstrip("-").isdecimal() and len(given) < 5 else 99,
        )
    except TrainingRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, f"{job} has priority {given} now.")
    return redirect("web:training", project_id)


@login_required
@require_POST
def training_quota(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    form = QuotaForm(request.POST)
    if not form.is_valid():
        messages.error(request, "A quota is a whole number from 0 up, or empty.")
        return redirect("web:training", project_id)
    minutes = form.cleaned_data["minutes"]
    services.set_quota(
        actor=request.user,  # type: ignore[arg-type] # login_required
        project=project,
        max_running=form.cleaned_data["max_running"],
        device_s_per_day=None if minutes is None else 60 * minutes,
    )
    messages.success(request, "The quota is set. Jobs that run already go on.")
    return redirect("web:training", project_id)


@login_required
@require_POST
def training_alarm_acknowledge(
    request: HttpRequest, project_id: int, job_id: int, alarm_id: int
) -> HttpResponse:
    alarm = training_access.alarm_for_edit(request.user, project_id, job_id, alarm_id)
    services.acknowledge_alarm(actor=request.user, alarm=alarm)  # type: ignore[arg-type] # login_required
    messages.success(request, "Acknowledged. It comes back after some steps if it is still so.")
    return redirect("web:training_job", project_id, job_id)
