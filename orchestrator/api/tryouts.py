"""Episodes that a person plays by hand. For editors: what is shown may solve the task."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging, steering, work
from orchestrator.api.base import actor_of, api_url, chosen, found, operation, page_url, read
from orchestrator.api.draft_tasks import DraftTaskAnswer, task_answer
from orchestrator.api.making import made_once
from orchestrator.api.shapes import page_of
from orchestrator.environments.queries import list_tasks, versions_in
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project, User
from orchestrator.tryouts import services
from orchestrator.tryouts.limits import LONGEST_PLAY
from orchestrator.tryouts.models import Tryout
from orchestrator.tryouts.play import PlayedStep
from orchestrator.tryouts.queries import pending_commands, play_of, tryouts_in
from orchestrator.tryouts.reference import save_reference


class PlayedAnswer(TypedDict):
    number: Annotated[int, "From 1."]
    action: Any
    observation: Annotated[dict[str, Any] | None, "Null while it is not there, or failed."]
    failure: dict[str, Any] | None
    verdicts: list[Any]
    score: dict[str, Any] | None
    done: bool


class TryoutAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    environment: Annotated[str, "Slug."]
    version: int
    task: Annotated[str | None, "Key; null for an episode of no stored task."]
    user: str
    state: Annotated[str, "starting, open, ended or lost."]
    has_ended: bool
    message: str
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class PlayAnswer(TryoutAnswer):
    action_schema: Annotated[dict[str, Any] | None, "What the server accepts as an action."]
    tools: list[Any]
    reset: Annotated[dict[str, Any] | None, "What the reset brought; null before it."]
    steps: Annotated[list[PlayedAnswer], "Of the play that stands, undone ones left out."]
    n_waiting: Annotated[int, "Commands that have no answer yet."]


class NewTryout(serializers.Serializer[Any]):
    task = serializers.CharField(
        max_length=64, required=False, help_text="Its key; left out: an episode of no stored task."
    )
    params = serializers.DictField(
        required=False, help_text="Of the reset; left out: the task's own."
    )
    rubric = work.id_field(required=False, help_text="Its id: each step is graded.")
    rubric_version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)


class TryoutStep(serializers.Serializer[Any]):
    action = serializers.DictField(help_text="As `action_schema` says.")


class TryoutReset(serializers.Serializer[Any]):
    params = serializers.DictField(default=dict)


class TryoutUndo(serializers.Serializer[Any]):
    steps = serializers.IntegerField(min_value=1, max_value=LONGEST_PLAY, default=1)


class TryoutRubric(serializers.Serializer[Any]):
    rubric = work.id_field(help_text="Its id.")
    rubric_version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)


class _Tryout(steering.Steered):
    area = "environments"
    reader = staticmethod(project_for_edit)

    @staticmethod
    def work_in(project: Project) -> Any:
        return tryouts_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return tryout_answer(request, work)


class Tryouts(steering.Listing, _Tryout):
    list_page = "environments"

    @operation(page_of(TryoutAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The try-outs of a project, newest first. Editors."""
        return self.listed(request, project_id)


class VersionTryouts(steering.Listing, _Tryout):
    list_page = "environment_try"

    @staticmethod
    def located(project: Project, **named: Any) -> Mapping[str, Any]:
        versions = versions_in(project.pk)
        place = {"environment__slug": named["slug"], "number": named["number"]}
        return {"version": found(versions, **place)}

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        version = asked["version"]
        task = None
        if "task" in asked:
            task = chosen(list_tasks(version.pk), "task", key=asked["task"])
        own = task.reset if task is not None else {}
        rubric = None
        if "rubric" in asked:
            rubric = work.rubric_version(project, asked["rubric"], asked.get("rubric_version"))
        return lambda: services.start_tryout(
            actor=actor,
            version=version,
            task=task,
            params=asked.get("params", own),
            rubric_version=rubric,
        )

    @operation(
        TryoutAnswer,
        body=NewTryout,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Starting; the caller's earlier one of this environment ends.",
    )
    def post(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """Opens an episode to be played by hand. Editors."""
        return self.started(request, project_id, NewTryout, slug=slug, number=number)


class TryoutDetail(_Tryout):
    @operation(PlayAnswer)
    def get(self, request: Request, project_id: int, tryout_id: int) -> Response:
        """One try-out with the play that stands. Editors."""
        project = project_for_edit(request.user, project_id)
        tryout = found(tryouts_in(project.pk), pk=tryout_id)
        play = play_of(tryout)
        answer: PlayAnswer = {
            **tryout_answer(request, tryout),
            "action_schema": tryout.action_schema,
            "tools": tryout.tools,
            "reset": play.reset,
            "steps": [_played(step) for step in play.steps],
            "n_waiting": len(pending_commands(tryout.pk)),
        }
        return Response(answer)


class TryoutEvents(steering.Events, _Tryout):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        return str(tryout_answer(request, work)["html_url"])

    @following.documented
    def get(self, request: Request, project_id: int, tryout_id: int) -> HttpResponseBase:
        """What has happened, or as it happens. Editors."""
        return self.answered(request, project_id, tryout_id)


class TryoutAction(steering.Action, _Tryout):
    subject = "tryout"
    actions = {
        "close": services.close_tryout,
        "restart": services.restart_tryout,
        "state": services.ask_state,
    }

    @operation(TryoutAnswer, status=202, says="Done, or asked for: its events tell.")
    def post(self, request: Request, project_id: int, tryout_id: int, action: str) -> Response:
        """Closes it, plays it again in a fresh session, or asks for the state. Editors."""
        return self.done(request, project_id, tryout_id, action)


class _Command(_Tryout):
    """Something that a person asks of an open session."""

    def asked(
        self, request: Request, project_id: int, tryout_id: int, ask: Callable[[Any], Any]
    ) -> Response:
        """`ask` takes the try-out."""
        project = project_for_edit(request.user, project_id)
        tryout = found(tryouts_in(project.pk), pk=tryout_id)

        def send() -> Response:
            ask(tryout)
            fresh = found(tryouts_in(project.pk), pk=tryout.pk)
            return Response(tryout_answer(request, fresh), status=202)

        return idempotency.once(request, send)


class TryoutSteps(_Command):
    @operation(
        TryoutAnswer,
        body=TryoutStep,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Asked for: its events tell what it brought.",
    )
    def post(self, request: Request, project_id: int, tryout_id: int) -> Response:
        """Takes a step. Editors."""
        return self.asked(
            request,
            project_id,
            tryout_id,
            lambda tryout: services.ask_step(
                actor=actor_of(request), tryout=tryout, **read(TryoutStep, request.data)
            ),
        )


class TryoutResets(_Command):
    @operation(
        TryoutAnswer,
        body=TryoutReset,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Asked for: its events tell what it brought.",
    )
    def post(self, request: Request, project_id: int, tryout_id: int) -> Response:
        """Begins the episode anew. Editors."""
        return self.asked(
            request,
            project_id,
            tryout_id,
            lambda tryout: services.ask_reset(
                actor=actor_of(request), tryout=tryout, **read(TryoutReset, request.data)
            ),
        )


class TryoutUndos(_Command):
    @operation(
        TryoutAnswer,
        body=TryoutUndo,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Asked for: the others are played again in a fresh session.",
    )
    def post(self, request: Request, project_id: int, tryout_id: int) -> Response:
        """Takes the last steps back. Editors."""
        return self.asked(
            request,
            project_id,
            tryout_id,
            lambda tryout: services.ask_undo(
                actor=actor_of(request), tryout=tryout, **read(TryoutUndo, request.data)
            ),
        )


class TryoutRubrics(_Command):
    @operation(
        TryoutAnswer,
        body=TryoutRubric,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Asked for: the steps so far are graded.",
    )
    def post(self, request: Request, project_id: int, tryout_id: int) -> Response:
        """Grades by another rubric. Editors."""

        def ask(tryout: Tryout) -> None:
            asked = read(TryoutRubric, request.data)
            version = work.rubric_version(
                tryout.version.environment.project, asked["rubric"], asked.get("rubric_version")
            )
            services.choose_rubric(actor=actor_of(request), tryout=tryout, rubric_version=version)

        return self.asked(request, project_id, tryout_id, ask)


class TryoutReference(_Tryout):
    @operation(
        DraftTaskAnswer,
        parameters=[idempotency.PARAMETER],
        says="In the draft; it counts once the draft is published.",
    )
    def post(self, request: Request, project_id: int, tryout_id: int) -> Response:
        """Keeps the play as the reference transcript of its train task. Editors."""
        project = project_for_edit(request.user, project_id)
        tryout = found(tryouts_in(project.pk), pk=tryout_id)
        return made_once(
            request,
            partial(save_reference, actor=actor_of(request), tryout=tryout),
            lambda row: task_answer(request, row.draft, row),
            status=200,
        )


def tryout_answer(request: Request, tryout: Tryout) -> TryoutAnswer:
    environment = tryout.version.environment
    where = (environment.project_id, tryout.pk)
    return {
        "id": tryout.pk,
        "url": api_url(request, "tryout", *where),
        "html_url": page_url(
            request, "tryout", environment.project_id, environment.slug, tryout.pk
        ),
        "events_url": api_url(request, "tryout_events", *where),
        "environment": environment.slug,
        "version": tryout.version.number,
        "task": None if tryout.task is None else tryout.task.key,
        "user": tryout.user.get_username(),
        "state": tryout.state,
        "has_ended": not tryout.is_live,
        "message": tryout.message,
        "created_at": tryout.created_at,
        "ended_at": tryout.ended_at,
    }


def _played(step: PlayedStep) -> PlayedAnswer:
    return {
        "number": step.number,
        "action": step.action,
        "observation": step.observation,
        "failure": step.failure,
        "verdicts": step.verdicts,
        "score": step.score,
        "done": step.done,
    }
