"""What the weights of a checkpoint make of the tokens of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency
from orchestrator.api.base import Endpoint, actor_of, api_url, found, operation, page_url
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout
from orchestrator.runs.queries import rollouts_in
from orchestrator.trainings import lens
from orchestrator.trainings.project_queries import checkpoints_in
from training.models import Checkpoint

OPEN = ("queued", "running")


class TokenLookAnswer(TypedDict):
    url: str
    html_url: str
    events_url: str
    rollout: int
    training: Annotated[int, "Id of the job of the checkpoint."]
    step: int
    state: Annotated[str, "none: nobody has asked; done, failed, or that of its job."]
    has_ended: bool
    error: str
    rows: Annotated[list[Any], "Of a finished one, for each stored row of token ids."]


class TokenLook(Endpoint):
    area = "trainings"

    @operation(TokenLookAnswer)
    def get(
        self, request: Request, project_id: int, rollout_id: int, job_id: int, step: int
    ) -> Response:
        """What it found, or how far it is."""
        project = project_for_view(request.user, project_id)
        return Response(_answer(request, *_pair(project, rollout_id, job_id, step)))

    @operation(
        TokenLookAnswer,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way or done is answered instead.",
    )
    def post(
        self, request: Request, project_id: int, rollout_id: int, job_id: int, step: int
    ) -> Response:
        """Asks for the surprise of each token. Editors."""
        project = project_for_edit(request.user, project_id)
        rollout, checkpoint = _pair(project, rollout_id, job_id, step)

        def start() -> Response:
            lens.start(actor=actor_of(request), rollout=rollout, checkpoint=checkpoint)
            answer = _answer(request, rollout, checkpoint)
            return Response(answer, status=202, headers={"Location": answer["url"]})

        return idempotency.once(request, start)

    @operation(None, status=204, says="Ended; a finished one stays.")
    def delete(
        self, request: Request, project_id: int, rollout_id: int, job_id: int, step: int
    ) -> Response:
        """Cancels one that is under way. Editors."""
        project = project_for_edit(request.user, project_id)
        rollout, checkpoint = _pair(project, rollout_id, job_id, step)
        lens.cancel(actor=actor_of(request), rollout=rollout, checkpoint=checkpoint)
        return Response(status=204)


class TokenLookEvents(Endpoint):
    area = "trainings"

    @following.documented
    def get(
        self, request: Request, project_id: int, rollout_id: int, job_id: int, step: int
    ) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        project = project_for_view(request.user, project_id)
        rollout, checkpoint = _pair(project, rollout_id, job_id, step)

        def look() -> Mapping[str, Any]:
            return _answer(request, rollout, checkpoint)

        return following.states_answer(request, look)


def _pair(project: Project, rollout_id: int, job_id: int, step: int) -> tuple[Rollout, Checkpoint]:
    rollout = found(rollouts_in(project.pk), pk=rollout_id)
    return rollout, found(checkpoints_in(project.pk), training_job_id=job_id, step=step)


def _answer(request: Request, rollout: Rollout, checkpoint: Checkpoint) -> TokenLookAnswer:
    project_id = rollout.run.project_id
    where = (project_id, rollout.pk, checkpoint.training_job_id, checkpoint.step)
    seen = lens.view(rollout, checkpoint)
    page = page_url(request, "rollout_ledger", project_id, rollout.pk)
    return {
        "url": api_url(request, "look", *where),
        "html_url": f"{page}?after={checkpoint.pk}",
        "events_url": api_url(request, "look_events", *where),
        "rollout": rollout.pk,
        "training": checkpoint.training_job_id,
        "step": checkpoint.step,
        "state": seen.state,
        "has_ended": seen.state not in OPEN,
        "error": seen.error,
        "rows": [dict(row) for row in (seen.rows or {}).values()],
    }
