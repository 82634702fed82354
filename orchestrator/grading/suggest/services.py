"""What changes suggestions: asked for, told of, ended, taken one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.events.services import Fence, hold_fence
from orchestrator.grading.errors import DraftRefused
from orchestrator.grading.models import RegradeState, RubricSuggestion
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from rubrics.models import Rubric

JOB_KIND = "grading.suggest"
OPEN_STATES = (RegradeState.QUEUED, RegradeState.RUNNING)
MAX_TRACES = 10
RAW_CHARS = 20_000


def ask_for_suggestions(
    *,
    actor: User,
    rubric: Rubric,
    endpoint: ModelEndpoint,
    environment_version: EnvironmentVersion,
    n_traces: int,
) -> RubricSuggestion:
    """Queues the question; the one that is under way where there is one. Raises DraftRefused."""
    require(actor, rubric.project_id, Role.EDITOR)
    if not 0 <= n_traces <= MAX_TRACES:
        raise DraftRefused(f"Traces: 0 to {MAX_TRACES}.")
    if endpoint.project_id != rubric.project_id:
        raise DraftRefused("This model belongs to another project.")
    if environment_version.environment.project_id != rubric.project_id:
        raise DraftRefused("This environment belongs to another project.")
    with transaction.atomic():
        open_one = rubric.suggestions.filter(state__in=OPEN_STATES).first()
        if open_one is not None:
            return open_one
        suggestion = RubricSuggestion.objects.create(
            rubric=rubric,
            endpoint=endpoint,
            environment_version=environment_version,
            n_traces=n_traces,
            asked_by=actor,
        )
        suggestion.job = jobs.enqueue(
            kind=JOB_KIND,
            spec={"suggestion_id": suggestion.pk},
            key=f"rubric-suggestion-{suggestion.pk}",
        )
        suggestion.save(update_fields=["job"])
    return suggestion


def cancel_suggestion(*, actor: User, suggestion: RubricSuggestion) -> None:
    require(actor, suggestion.rubric.project_id, Role.EDITOR)
    if suggestion.job is not None:
        jobs.cancel(job=suggestion.job)


def settle(*, actor: User, suggestion: RubricSuggestion, number: int, how: str) -> None:
    """Remembers that the author took or dismissed one. Raises DraftRefused."""
    require(actor, suggestion.rubric.project_id, Role.EDITOR)
    if how not in ("taken", "dismissed"):
        raise DraftRefused("A suggestion is taken or dismissed.")
    with transaction.atomic():
        now = RubricSuggestion.objects.select_for_update().get(pk=suggestion.pk)
        if not 0 <= number < len(now.criteria):
            raise DraftRefused("There is no such suggestion.")
        now.criteria[number]["settled"] = how
        now.save(update_fields=["criteria"])


def tell(*, suggestion_id: int, progress: str, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        RubricSuggestion.objects.filter(pk=suggestion_id, state__in=OPEN_STATES).update(
            state=RegradeState.RUNNING, progress=progress
        )


def complete(
    *,
    suggestion_id: int,
    criteria: Sequence[Mapping[str, Any]],
    left_out: Sequence[Mapping[str, str]],
    raw: str,
    fence: Fence,
) -> None:
    with transaction.atomic():
        hold_fence(fence)
        _end(
            suggestion_id,
            RegradeState.COMPLETED,
            criteria=list(criteria),
            left_out=list(left_out),
            raw=raw[:RAW_CHARS],
        )


def fail(*, suggestion_id: int, error: str, raw: str = "", fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        _end(suggestion_id, RegradeState.FAILED, error=error, raw=raw[:RAW_CHARS])


def end_unfinished(*, suggestion_id: int, state: str, error: str) -> None:
    """For one whose job was cancelled or given up."""
    _end(suggestion_id, state, error=error)


def _end(suggestion_id: int, state: str, **fields: Any) -> None:
    RubricSuggestion.objects.filter(pk=suggestion_id, state__in=OPEN_STATES).update(
        state=state, progress="", ended_at=timezone.now(), **fields
    )
