"""Rollouts: their scores, verdicts, events and traces."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypedDict

from django.db.models import prefetch_related_objects
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, paging, parts
from orchestrator.api.base import Endpoint, api_url, found, operation, page_url, read
from orchestrator.api.shapes import page_of
from orchestrator.environments.models import Split
from orchestrator.events.queries import events_after
from orchestrator.projects.access import project_for_view
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, VerdictRecord
from orchestrator.runs.queries import finite_or_none, rollouts_in, rollouts_of, runs_in

JSONL = "application/x-ndjson"


class VerdictAnswer(TypedDict):
    criterion: str
    name: str
    state: Annotated[str, "scored, errored, not_applicable or pending; only scored has a value."]
    value: float | None
    reason: str
    cites: Annotated[list[Any], "Sequences of the events that it rests on."]


class RolloutAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    run: Annotated[int, "Its id."]
    task: Annotated[str, "Key of the task."]
    split: str
    family: str
    replicate: int
    harness: parts.HarnessRef
    seed: int
    state: Annotated[str, "Only `scored` has a score."]
    score: float | None
    reward: Annotated[float | None, "What the environment itself gave."]
    cause: Annotated[str, "Why it errored, as a word."]
    message: str
    answer: str
    attempt: int
    n_steps: int
    tokens_in: int
    tokens_out: int
    cost_usd: float
    latency_s: float | None
    weight_version: str
    verdicts: list[VerdictAnswer]
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class RolloutsQuery(serializers.Serializer[Any]):
    state = serializers.ChoiceField(RolloutState.choices, required=False)
    task = serializers.CharField(max_length=64, required=False, help_text="Key of a task.")
    split = serializers.ChoiceField(Split.choices, required=False)


class RunRollouts(Endpoint):
    area = "runs"

    @operation(page_of(RolloutAnswer), query=RolloutsQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, run_id: int) -> Response:
        """The rollouts of a run in their order, with their verdicts."""
        project = project_for_view(request.user, project_id)
        run = found(runs_in(project.pk), pk=run_id)
        asked = read(RolloutsQuery, request.query_params)
        names = {"state": "state", "task": "task__key", "split": "task__split"}
        return Response(
            paging.paged(
                request,
                rollouts_of(run.pk).filter(**{names[name]: asked[name] for name in asked}),
                lambda rollouts: rollout_answers(request, project.pk, rollouts),
                html_url=page_url(request, "run", project.pk, run.pk),
                newest_first=False,
            )
        )


class RunVerdicts(Endpoint):
    area = "runs"

    @extend_schema(
        responses={
            (200, JSONL): OpenApiResponse(
                {"type": "string"}, description="One rollout a line, as in the list of rollouts."
            )
        }
    )
    def get(self, request: Request, project_id: int, run_id: int) -> HttpResponseBase:
        """All rollouts of a run with their verdicts as JSON lines, however many there are."""
        project = project_for_view(request.user, project_id)
        run = found(runs_in(project.pk), pk=run_id)
        return _lines(
            answer
            for batch in _batches(run.pk)
            for answer in rollout_answers(request, project.pk, batch)
        )


class RolloutDetail(Endpoint):
    area = "runs"

    @operation(RolloutAnswer)
    def get(self, request: Request, project_id: int, rollout_id: int) -> Response:
        """One rollout with its verdicts; also one that a retry has replaced."""
        project = project_for_view(request.user, project_id)
        rollout = found(rollouts_in(project.pk), pk=rollout_id)
        return Response(rollout_answers(request, project.pk, [rollout])[0])


class RolloutEvents(Endpoint):
    area = "runs"

    @following.documented
    def get(self, request: Request, project_id: int, rollout_id: int) -> HttpResponseBase:
        """Its trace: pages of events, or as they come."""
        project = project_for_view(request.user, project_id)
        rollout = found(rollouts_in(project.pk).select_related("stream"), pk=rollout_id)
        return following.events_answer(
            request,
            rollout.stream,
            has_ended=rollout.state not in OPEN_ROLLOUT_STATES,
            html_url=page_url(request, "rollout", project.pk, rollout.pk),
        )


class RolloutTrace(Endpoint):
    area = "runs"

    @extend_schema(
        responses={
            (200, JSONL): OpenApiResponse({"type": "string"}, description="One event a line.")
        }
    )
    def get(self, request: Request, project_id: int, rollout_id: int) -> HttpResponseBase:
        """Its whole trace as JSON lines."""
        project = project_for_view(request.user, project_id)
        rollout = found(rollouts_in(project.pk), pk=rollout_id)
        return _lines(_events(rollout.stream_id))


def rollout_answers(
    request: Request, project_id: int, rollouts: list[Rollout]
) -> list[RolloutAnswer]:
    """With verdicts, in one more query."""
    prefetch_related_objects(rollouts, "verdicts")
    return [
        {
            "id": rollout.pk,
            "url": api_url(request, "rollout", project_id, rollout.pk),
            "html_url": page_url(request, "rollout", project_id, rollout.pk),
            "events_url": api_url(request, "rollout_events", project_id, rollout.pk),
            "run": rollout.run_id,
            "task": rollout.task.key,
            "split": rollout.task.split,
            "family": rollout.task.family,
            "replicate": rollout.replicate,
            "harness": parts.harness_ref(rollout.harness),
            "seed": rollout.seed,
            "state": rollout.state,
            "score": finite_or_none(rollout.score),
            "reward": finite_or_none(rollout.reward),
            "cause": rollout.cause,
            "message": rollout.message,
            "answer": rollout.answer,
            "attempt": rollout.attempt,
            "n_steps": rollout.n_steps,
            "tokens_in": rollout.tokens_in,
            "tokens_out": rollout.tokens_out,
            "cost_usd": rollout.cost_usd,
            "latency_s": rollout.latency_s,
            "weight_version": rollout.weight_version,
            "verdicts": [verdict_answer(verdict) for verdict in rollout.verdicts.all()],
            "started_at": rollout.started_at,
            "ended_at": rollout.ended_at,
        }
        for rollout in rollouts
    ]


def verdict_answer(verdict: VerdictRecord) -> VerdictAnswer:
    return {
        "criterion": verdict.criterion,
        "name": verdict.name,
        "state": verdict.state,
        "value": finite_or_none(verdict.value),
        "reason": verdict.reason,
        "cites": verdict.cites,
    }


def _lines(answers: Iterable[Any]) -> StreamingHttpResponse:
    renderer = JSONRenderer()
    return StreamingHttpResponse(
        (renderer.render(answer) + b"\n" for answer in answers),
        content_type=f"{JSONL}; charset=utf-8",
    )


def _batches(run_id: int, size: int = 200) -> Iterator[list[Rollout]]:
    after = 0
    while batch := list(rollouts_of(run_id).filter(pk__gt=after)[:size]):
        after = batch[-1].pk
        yield batch


def _events(stream_id: int) -> Iterator[Any]:
    after = 0
    while events := events_after(stream_id, after):
        after = events[-1].seq
        for event in events:
            yield {
                "seq": event.seq,
                "kind": event.kind,
                "payload": event.payload,
                "at": event.at,
            }
