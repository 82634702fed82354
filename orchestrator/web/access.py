"""Fetch and authorise the object of a page in one call.

An object is always looked up inside the project of the address, so that an id of another project
is answered like one that does not exist.
"""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404

from optimizer.models import Search
from orchestrator.agents.models import ModelEndpoint
from orchestrator.climbs.models import Climb
from orchestrator.environments.models import Environment, EnvironmentCheck, Task
from orchestrator.projects.access import (
    Actor,
    project_for_admin,
    project_for_edit,
    project_for_view,
)
from orchestrator.projects.models import Invitation, Membership, Project
from orchestrator.runs.models import Rollout, Run
from orchestrator.webhooks.models import Delivery, Webhook
from rubrics.models import Rubric
from training.models import TrainingJob

M = TypeVar("M", bound=Model)


def run_for_view(actor: Actor, project_id: int, run_id: int) -> Run:
    return _in_project(
        Run.objects.select_related(
            "project",
            "environment_version__environment",
            "rubric_version__rubric",
            "model",
            "stream",
            "search_run__search",
        ),
        project_for_view(actor, project_id),
        run_id,
    )


def run_for_edit(actor: Actor, project_id: int, run_id: int) -> Run:
    return _in_project(Run.objects.all(), project_for_edit(actor, project_id), run_id)


def rollout_for_view(actor: Actor, project_id: int, rollout_id: int) -> Rollout:
    project = project_for_view(actor, project_id)
    return get_object_or_404(
        Rollout.everything.select_related("stream", "run__rubric_version"),
        run__project=project,
        pk=rollout_id,
    )


def model_for_edit(actor: Actor, project_id: int, model_id: int) -> ModelEndpoint:
    return _in_project(ModelEndpoint.objects.all(), project_for_edit(actor, project_id), model_id)


def climb_for_view(actor: Actor, project_id: int, climb_id: int) -> Climb:
    return _in_project(Climb.objects.all(), project_for_view(actor, project_id), climb_id)


def climb_for_edit(actor: Actor, project_id: int, climb_id: int) -> Climb:
    return _in_project(Climb.objects.all(), project_for_edit(actor, project_id), climb_id)


def search_for_view(actor: Actor, project_id: int, search_id: int) -> Search:
    return _in_project(Search.objects.all(), project_for_view(actor, project_id), search_id)


def search_for_edit(actor: Actor, project_id: int, search_id: int) -> Search:
    return _in_project(
        Search.objects.select_related("project"), project_for_edit(actor, project_id), search_id
    )


def environment_for_view(actor: Actor, project_id: int, slug: str) -> Environment:
    project = project_for_view(actor, project_id)
    return get_object_or_404(Environment, project=project, slug=slug)


def task_for_view(actor: Actor, project_id: int, slug: str, number: int, key: str) -> Task:
    project = project_for_view(actor, project_id)
    return get_object_or_404(
        Task.objects.select_related("version__environment"),
        version__environment__project=project,
        version__environment__slug=slug,
        version__number=number,
        key=key,
    )


def check_for_edit(actor: Actor, project_id: int, slug: str, check_id: int) -> EnvironmentCheck:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        EnvironmentCheck.objects.select_related("version__environment", "job"),
        version__environment__project=project,
        version__environment__slug=slug,
        pk=check_id,
    )


def rubric_for_view(actor: Actor, project_id: int, rubric_id: int) -> Rubric:
    return _in_project(Rubric.objects.all(), project_for_view(actor, project_id), rubric_id)


def training_job_for_view(actor: Actor, project_id: int, job_id: int) -> TrainingJob:
    return _in_project(
        TrainingJob.objects.select_related("stream"), project_for_view(actor, project_id), job_id
    )


def membership_for_view(actor: Actor, project_id: int, user_id: int) -> Membership:
    project = project_for_view(actor, project_id)
    return _membership(project, user_id)


def membership_for_admin(actor: Actor, project_id: int, user_id: int) -> Membership:
    return _membership(project_for_admin(actor, project_id), user_id)


def invitation_for_admin(actor: Actor, project_id: int, invitation_id: int) -> Invitation:
    project = project_for_admin(actor, project_id)
    return _in_project(Invitation.objects.all(), project, invitation_id)


def webhook_for_admin(actor: Actor, project_id: int, webhook_id: int) -> Webhook:
    project = project_for_admin(actor, project_id)
    return _in_project(Webhook.objects.select_related("project"), project, webhook_id)


def delivery_for_admin(
    actor: Actor, project_id: int, webhook_id: int, delivery_id: int
) -> Delivery:
    webhook = webhook_for_admin(actor, project_id, webhook_id)
    return get_object_or_404(
        Delivery.objects.select_related("webhook"), webhook=webhook, pk=delivery_id
    )


def _membership(project: Project, user_id: int) -> Membership:
    return get_object_or_404(
        Membership.objects.select_related("user"), project=project, user_id=user_id
    )


def _in_project(query: QuerySet[M], project: Project, pk: int) -> M:
    return get_object_or_404(query, project=project, pk=pk)
