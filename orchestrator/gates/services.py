"""What people and CI jobs do to gates: start, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.events.services import create_stream
from orchestrator.gates.deciding import Reason, Verdict
from orchestrator.gates.errors import GateEnded, GateRefused
from orchestrator.gates.models import Gate
from orchestrator.gates.policy import Policy, PolicyInvalid, plan_for
from orchestrator.gates.telling import cancel_runs, end_cancelled, end_decided, queue_advance
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.seeds import derive_seed
from rubrics.models import RubricVersion

MAX_NAME = 200
SOURCES = ("commit", "branch", "pull_request", "url")
MAX_SOURCE = 500
MAX_CONCURRENCY = 256


@dataclass(frozen=True)
class GateForm:
    """All that a gate is made of."""

    name: str
    environment_version: EnvironmentVersion
    rubric_version: RubricVersion
    candidate: HarnessVersion
    candidate_model: ModelEndpoint
    baseline: HarnessVersion
    baseline_model: ModelEndpoint
    policy: Policy
    split: str = Split.SELECT
    tasks: tuple[str, ...] = ()
    """Keys; empty: all of the split."""
    n_tasks: int | None = None
    """The first so many of them."""
    source: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 16


def start_gate(*, actor: User, project: Project, form: GateForm) -> Gate:
    """Raises GateRefused, with the field; nothing was made."""
    require(actor, project, Role.EDITOR)
    keys = _checked(project, form)
    with transaction.atomic():
        return _created(actor, project, form, keys)


def _created(actor: User, project: Project, form: GateForm, keys: Sequence[str]) -> Gate:
    gate = Gate.objects.create(
        project=project,
        stream=create_stream(project=project, kind="gate"),
        name=form.name.strip()[:MAX_NAME],
        environment_version=form.environment_version,
        rubric_version=form.rubric_version,
        split=form.split,
        tasks=list(keys),
        candidate=form.candidate,
        candidate_model=form.candidate_model,
        baseline=form.baseline,
        baseline_model=form.baseline_model,
        policy=form.policy.to_json(),
        source=dict(form.source),
        concurrency=form.concurrency,
        created_by=actor,
    )
    # Another gate on the same change starts elsewhere, or it would repeat its luck.
    gate.seed = derive_seed("gate", project.pk, gate.pk)
    gate.save(update_fields=["seed"])
    if form.candidate.pk == form.baseline.pk and form.candidate_model.pk == form.baseline_model.pk:
        end_decided(
            gate=gate,
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.SAME,
            sentence=(
                f"Both sides are {form.candidate.short} on {form.candidate_model}: there is no "
                "change to decide on, and nothing was run."
            ),
        )
    else:
        queue_advance(gate_id=gate.pk, after="start")
    return gate


def _checked(project: Project, form: GateForm) -> list[str]:
    """The keys of its tasks. Raises GateRefused."""
    owners = {
        "environment": form.environment_version.environment.project_id,
        "rubric": form.rubric_version.rubric.project_id,
        "harness": form.candidate.project_id,
        "baseline": form.baseline.project_id,
        "model": form.candidate_model.project_id,
        "baseline_model": form.baseline_model.project_id,
    }
    for name, owner in owners.items():
        if owner != project.pk:
            raise GateRefused(name, "is of another project")
    if not form.name.strip():
        raise GateRefused("name", "accepts a text, for example the title of the pull request")
    if form.split not in Split.values:
        raise GateRefused("split", f"accepts {', '.join(Split.values)}, got {form.split!r}")
    if not 1 <= form.concurrency <= MAX_CONCURRENCY:
        raise GateRefused("concurrency", f"accepts 1 to {MAX_CONCURRENCY}, got {form.concurrency}")
    _check_source(form.source)
    _check_criteria(form)
    keys = _keys(form)
    try:
        plan_for(form.policy, len(keys))
    except PolicyInvalid as exc:
        name = exc.field if exc.field == "tasks" else f"policy.{exc.field}"
        raise GateRefused(name, exc.accepts) from exc
    return keys


def _check_source(source: Mapping[str, Any]) -> None:
    for name, text in source.items():
        if name not in SOURCES:
            raise GateRefused(f"source.{name}", f"is unknown; known are {', '.join(SOURCES)}")
        if not isinstance(text, str) or len(text) > MAX_SOURCE:
            raise GateRefused(
                f"source.{name}", f"accepts a text of at most {MAX_SOURCE} characters"
            )
        if name == "url" and text and not text.startswith(("https://", "http://")):
            raise GateRefused(
                "source.url", "accepts an address that begins with https:// or http://"
            )


def _check_criteria(form: GateForm) -> None:
    known = [str(raw.get("id")) for raw in form.rubric_version.spec.get("criteria") or ()]
    named = {"required": form.policy.required}
    if form.policy.criterion is not None:
        named["metric"] = (form.policy.criterion,)
    for name, ids in named.items():
        for missing in ids:
            if missing not in known:
                raise GateRefused(
                    f"policy.{name}",
                    f"{form.rubric_version} has no criterion {missing!r}; it has "
                    f"{', '.join(known)}",
                )


def _keys(form: GateForm) -> list[str]:
    found = list(
        Task.objects.filter(version=form.environment_version, split=form.split)
        .order_by("key")
        .values_list("key", flat=True)
    )
    if not found:
        raise GateRefused(
            "split", f"{form.environment_version} has no tasks in the split {form.split}"
        )
    if form.tasks:
        if missing := sorted(set(form.tasks) - set(found)):
            raise GateRefused(
                "tasks", f"the split {form.split} has no task {', '.join(missing[:5])}"
            )
        found = [key for key in found if key in set(form.tasks)]
    if form.n_tasks is not None:
        if form.n_tasks < 1:
            raise GateRefused("n_tasks", f"accepts at least 1, got {form.n_tasks}")
        found = found[: form.n_tasks]
    return found


def cancel_gate(*, actor: User, gate: Gate) -> None:
    """Ends the gate without a verdict; its runs are cancelled. Raises GateEnded."""
    require(actor, gate.project, Role.EDITOR)
    with transaction.atomic():
        if not end_cancelled(gate=gate):
            raise GateEnded(f"{gate} is {gate.get_state_display()}; it has ended.")
        # Runs are cancelled by the job too: this process may end before it comes to that.
        queue_advance(gate_id=gate.pk, after="cancel")
    cancel_runs(gate)
