"""Gates: the decision on one change, asked for by a CI job and followed until it is there."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.agents.queries import endpoints_in
from orchestrator.api import following, idempotency, paging, parts, steering, work
from orchestrator.api.base import (
    api_url,
    chosen,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.environments.models import Environment, Split
from orchestrator.gates import services
from orchestrator.gates.errors import GateRefused
from orchestrator.gates.models import Gate, GateState
from orchestrator.gates.policy import MAX_ROLLOUTS, Policy, PolicyInvalid
from orchestrator.gates.queries import gates_in, harnesses_named, plan_of, run_ids_of, spent_by
from orchestrator.grading.queries import rubrics_in
from orchestrator.harnesses.services import add_harness
from orchestrator.harnesses.uploads import harness_of_zip
from orchestrator.projects.models import Project, User
from orchestrator.searches.releases import current

FORMS = ("ref", "files", "zip", "released")


class LookAnswer(TypedDict):
    """What a gate plans to look at, and how strong the evidence must be there."""

    replicates: Annotated[int, "Of each task and side, from the start."]
    rollouts: Annotated[int, "Of both sides, from the start."]
    level: Annotated[float, "A one-sided p-value at or below it decides at this look."]


class SpentAnswer(TypedDict):
    rollouts: Annotated[int, "That have ended."]
    running: int
    most_rollouts: Annotated[int, "All that the gate may ask for."]
    tokens: int
    cost_usd: float


class GateAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    name: str
    state: Annotated[str, "queued, running, decided or cancelled."]
    has_ended: bool
    verdict: Annotated[str, "better, regressed, inconclusive or infrastructure; empty before."]
    reason: Annotated[
        str, "difference, required, task_floor, small, budget, coverage, same or failed."
    ]
    sentence: Annotated[str, "Why, in words."]
    exit_code: Annotated[int | None, "For a CI job: 0, 1, 2, 3 in the order of the verdicts."]
    decision: Annotated[dict[str, Any] | None, "Of the newest look: docs/how-to/gate-a-change.md."]
    decisions: Annotated[list[dict[str, Any]], "Of all looks so far."]
    looks: list[LookAnswer]
    spent: SpentAnswer
    environment: parts.EnvironmentRef
    rubric: parts.RubricRef
    split: str
    n_tasks: int
    candidate: parts.HarnessRef
    candidate_model: parts.ModelRef
    baseline: parts.HarnessRef
    baseline_model: parts.ModelRef
    policy: dict[str, Any]
    source: dict[str, Any]
    run_ids: list[int]
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


EXIT_CODES = {"better": 0, "regressed": 1, "inconclusive": 2, "infrastructure": 3}


class GatesQuery(serializers.Serializer[Any]):
    state = serializers.ChoiceField(GateState.choices, required=False)


class HarnessSource(serializers.Serializer[Any]):
    """Exactly one of them."""

    ref = serializers.CharField(
        max_length=64, required=False, help_text="Id, `h_…`, or the beginning of its sha256."
    )
    files = serializers.DictField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=2**20),
        required=False,
        help_text="Texts by path: harness.yaml, instructions.md, skills/<name>/SKILL.md …",
    )
    zip = serializers.CharField(
        max_length=12 * 2**20, required=False, help_text="A zip file of its folder, in base64."
    )
    released = serializers.BooleanField(
        required=False, help_text="True: what the project has released for this environment."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in FORMS if attrs.get(name) not in (None, False)]
        if len(given) != 1:
            raise serializers.ValidationError(f"accepts exactly one of {', '.join(FORMS)}")
        return {given[0]: attrs[given[0]]}


class NewGate(serializers.Serializer[Any]):
    name = serializers.CharField(
        max_length=services.MAX_NAME, help_text="For people, as the title of a pull request."
    )
    environment = serializers.SlugField(max_length=64)
    version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)
    rubric = serializers.CharField(max_length=120, help_text="Its name or id.")
    rubric_version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)
    model = serializers.CharField(max_length=120, help_text="Its name or id.")
    harness = HarnessSource(help_text="The change.")
    baseline = HarnessSource(required=False, help_text="Left out: what is released.")
    baseline_model = serializers.CharField(
        max_length=120, required=False, help_text="Left out: the same model."
    )
    policy = serializers.DictField(
        default=dict, help_text="metric, margin, alpha, power, effect, rollouts, required …"
    )
    split = serializers.ChoiceField(Split.choices, default=Split.SELECT.value)
    tasks = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        max_length=MAX_ROLLOUTS,
        help_text="Keys; left out: all of the split.",
    )
    n_tasks = serializers.IntegerField(
        min_value=1, max_value=MAX_ROLLOUTS, required=False, help_text="The first so many of them."
    )
    source = serializers.DictField(  # type: ignore[assignment] # a field's own name, not its source
        child=serializers.CharField(max_length=services.MAX_SOURCE, allow_blank=True),
        default=dict,
        help_text="Where the change comes from: commit, branch, pull_request, url.",
    )
    concurrency = serializers.IntegerField(
        min_value=1, max_value=services.MAX_CONCURRENCY, default=16
    )


class _Gate(steering.Steered):
    area = "gates"

    @staticmethod
    def work_in(project: Project) -> Any:
        return gates_in(project.pk).select_related("project")

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return gate_answer(request, work)


class Gates(steering.Listing, _Gate):
    list_page = "gates"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        # A harness that comes with the request is kept: with the gate, or not at all.
        return lambda: services.start_gate(
            actor=actor, project=project, form=form_of(actor, project, asked)
        )

    @operation(page_of(GateAnswer), query=GatesQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The gates of a project, newest first."""
        return self.listed(request, project_id, **read(GatesQuery, request.query_params))

    @operation(
        GateAnswer,
        body=NewGate,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; follow `url` or `events_url` to the verdict.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Decides whether a change is better or worse than the baseline. Editors."""
        return self.started(request, project_id, NewGate)


class GateDetail(steering.Detail, _Gate):
    @operation(GateAnswer)
    def get(self, request: Request, project_id: int, gate_id: int) -> Response:
        """One gate."""
        return self.answered(request, project_id, gate_id)


class GateAction(steering.Action, _Gate):
    subject = "gate"
    actions = {"cancel": services.cancel_gate}

    @operation(GateAnswer, status=202, says="Its runs end; there is no verdict.")
    def post(self, request: Request, project_id: int, gate_id: int, action: str) -> Response:
        """Cancels it. Editors."""
        return self.done(request, project_id, gate_id, action)


class GateEvents(steering.Events, _Gate):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        return page_url(request, "gate", work.project_id, work.pk)

    @following.documented
    def get(self, request: Request, project_id: int, gate_id: int) -> HttpResponseBase:
        """What it has told so far, or as it tells it."""
        return self.answered(request, project_id, gate_id)


def form_of(actor: User, project: Project, asked: Mapping[str, Any]) -> services.GateForm:
    """Needs a transaction: harnesses that came with the request are kept. Raises ValidationError,
    GateRefused, UploadRefused, HarnessInvalid.
    """
    version = work.environment_version(project, asked["environment"], asked.get("version"))
    model = _model(project, "model", asked["model"])
    base_model = asked.get("baseline_model")
    try:
        policy = Policy.from_json(asked["policy"])
    except PolicyInvalid as refused:
        raise GateRefused(f"policy.{refused.field}", refused.accepts) from refused
    return services.GateForm(
        name=asked["name"],
        environment_version=version,
        rubric_version=work.rubric_version(
            project, _rubric(project, asked["rubric"]), asked.get("rubric_version")
        ),
        candidate=_harness(actor, project, "harness", asked["harness"], version.environment),
        candidate_model=model,
        baseline=_harness(
            actor,
            project,
            "baseline",
            asked.get("baseline", {"released": True}),
            version.environment,
        ),
        baseline_model=_model(project, "baseline_model", base_model) if base_model else model,
        policy=policy,
        split=asked["split"],
        tasks=tuple(asked.get("tasks", ())),
        n_tasks=asked.get("n_tasks"),
        source=asked["source"],
        concurrency=asked["concurrency"],
    )


def _harness(
    actor: User,
    project: Project,
    field: str,
    source: Mapping[str, Any],
    environment: Environment,
) -> HarnessVersion:
    if "ref" in source:
        return _harness_of_ref(project, field, source["ref"])
    if "released" in source:
        release = current(environment)
        if release is None:
            raise GateRefused(
                field,
                f"nothing is released for {environment}; release a harness, or send one as ref, "
                "files or zip",
            )
        return release.harness
    if "files" in source:
        harness = Harness.from_components(source["files"])
    else:
        try:
            content = base64.b64decode(source["zip"], validate=True)
        except (ValueError, binascii.Error) as error:
            raise ValidationError({f"{field}.zip": ["is no base64"]}) from error
        harness = harness_of_zip(content)
    return add_harness(actor=actor, project=project, harness=harness).version


def _harness_of_ref(project: Project, field: str, ref: str) -> HarnessVersion:
    matches = harnesses_named(project.pk, ref)
    if len(matches) != 1:
        word = "more than one harness" if matches else "no harness"
        raise GateRefused(
            f"{field}.ref",
            f"{ref!r} names {word} of this project; accepts an id, or 8 characters of its sha256 "
            "and more",
        )
    return matches[0]


def _model(project: Project, field: str, told: str) -> ModelEndpoint:
    found: ModelEndpoint = _named(endpoints_in(project.pk), field, told)
    return found


def _rubric(project: Project, told: str) -> int:
    return int(_named(rubrics_in(project.pk), "rubric", told).pk)


def _named(query: Any, field: str, told: str) -> Any:
    """By its name, else by its id."""
    by_name = query.filter(name=told).first()
    if by_name is not None:
        return by_name
    if told.isdecimal() and told.isascii() and len(told) < 16:
        return chosen(query, field, pk=int(told))
    return chosen(query, field, name=told)


def gate_answer(request: Request, gate: Gate) -> GateAnswer:
    where = (gate.project_id, gate.pk)
    plan, spent = plan_of(gate), spent_by(gate)
    return {
        "id": gate.pk,
        "url": api_url(request, "gate", *where),
        "html_url": page_url(request, "gate", *where),
        "events_url": api_url(request, "gate_events", *where),
        "name": gate.name,
        "state": gate.state,
        "has_ended": gate.has_ended,
        "verdict": gate.verdict,
        "reason": gate.reason,
        "sentence": gate.sentence,
        "exit_code": EXIT_CODES.get(gate.verdict),
        "decision": gate.decisions[-1] if gate.decisions else None,
        "decisions": gate.decisions,
        "looks": [
            {"replicates": n, "rollouts": 2 * plan.tasks * n, "level": look.level}
            for n, look in zip(plan.replicates, plan.looks, strict=True)
        ],
        "spent": {
            "rollouts": spent.rollouts,
            "running": spent.running,
            "most_rollouts": plan.rollouts,
            "tokens": spent.tokens,
            "cost_usd": spent.usd,
        },
        "environment": parts.environment_ref(gate.environment_version),
        "rubric": parts.rubric_ref(gate.rubric_version),
        "split": gate.split,
        "n_tasks": len(gate.tasks),
        "candidate": parts.harness_ref(gate.candidate),
        "candidate_model": parts.model_ref(gate.candidate_model),
        "baseline": parts.harness_ref(gate.baseline),
        "baseline_model": parts.model_ref(gate.baseline_model),
        "policy": gate.policy,
        "source": gate.source,
        "run_ids": run_ids_of(gate),
        "created_at": gate.created_at,
        "started_at": gate.started_at,
        "ended_at": gate.ended_at,
    }
