"""What people do to searches: start, pause, resume, cancel, raise a cap, nudge, approve, decline.

Releases are in `orchestrator.searches.releases`; proposals that are handed in go through
`orchestrator.proposing`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db import transaction
from django.utils import timezone

from optimizer.errors import SearchInvalid
from optimizer.models import (
    Comparison,
    HarnessVersion,
    Nudge,
    Release,
    Search,
    SearchPhase,
    SearchState,
)
from optimizer.reflection.answer import storable
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Split
from orchestrator.events.services import create_stream
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.proposing.terms import Terms
from orchestrator.runs.seeds import derive_seed
from orchestrator.searches import fingerprints, proposers, releases
from orchestrator.searches.ending import (
    cancel_runs,
    complete_search,
    end_cancelled,
    pause_for,
)
from orchestrator.searches.planning import make_plan
from orchestrator.searches.queueing import queue_advance
from orchestrator.searches.settings import BudgetSettings, SearchSettings, problems_of
from orchestrator.searches.spending import open_accounts, raise_caps
from orchestrator.searches.telling import say, tell_state
from rubrics.models import RubricVersion

MAX_NUDGE = 2_000


class SearchRefused(ValueError):
    """The search cannot be started or changed so; the message says why and what would help."""


@dataclass(frozen=True)
class SearchForm:
    """All that a search is made of."""

    name: str
    environment_version: EnvironmentVersion
    rubric_version: RubricVersion
    model: ModelEndpoint
    seed_harness: HarnessVersion
    settings: SearchSettings


def problems_with(project: Project, form: SearchForm) -> list[str]:
    """Why the search would be refused, in words for people; empty if it would start."""
    found = []
    owners = {
        "environment": form.environment_version.environment.project_id,
        "rubric": form.rubric_version.rubric.project_id,
        "model": form.model.project_id,
        "seed harness": form.seed_harness.project_id,
    }
    found += [f"The {what} is of another project." for what, pk in owners.items()
              if pk != project.pk]  # fmt: skip
    settings = form.settings
    named = [*settings.models, *([settings.proposer_model] if settings.proposer_model else [])]
    known = ModelEndpoint.objects.filter(project=project, pk__in=named).count()
    if known < len(set(named)):
        found.append("A model to propose with or to choose among is not of this project.")
    if other := proposers.unknown(settings.proposers):
        found.append(
            f"Unknown proposers: {', '.join(other)}. Known are {', '.join(proposers.KNOWN)}."
        )
    ids = {raw.get("id") for raw in form.rubric_version.spec.get("criteria") or ()}
    offline = settings.proposer_settings.get(proposers.OFFLINE, {})
    if problem := proposers.settings_problem(offline, ids):
        found.append(problem)
    for name in proposers.outside(settings.proposers):
        try:
            Terms.from_json(settings.proposer_settings.get(name, {}))
        except (ValueError, TypeError) as exc:
            found.append(f"proposer_settings of {name}: {exc}")
    if missing := [id for id in settings.safety if id not in ids]:
        found.append(f"safety: the rubric has no criterion {', '.join(missing)}.")
    splits = list(form.environment_version.tasks.values_list("split", flat=True))
    counts = {split: splits.count(split) for split in Split}
    found += problems_of(
        settings,
        train=counts[Split.TRAIN],
        select=counts[Split.SELECT],
        test=counts[Split.TEST],
    )
    if not found:
        try:
            make_plan(form.environment_version, settings, seed=0)
        except SearchInvalid as exc:
            found.append(str(exc))
    return found


def start_search(
    *, actor: User, project: Project, form: SearchForm, seed: int | None = None
) -> Search:
    """Raises SearchRefused: nothing is spent on a search that could not end well."""
    require(actor, project, Role.EDITOR)
    return create_search(project=project, form=form, seed=seed, created_by=actor)


def create_search(
    *, project: Project, form: SearchForm, seed: int | None = None, created_by: User | None = None
) -> Search:
    """Raises SearchRefused. Asks nobody: `start_search` does, and a climb was allowed to start."""
    if problems := problems_with(project, form):
        raise SearchRefused(" ".join(problems))
    version, harness = form.environment_version, form.seed_harness
    with transaction.atomic():
        if seed is None:
            # Another search over the same starts elsewhere, or it would repeat its luck.
            earlier = Search.objects.filter(project=project).count()
            seed = derive_seed("search", version.sha256, harness.sha256, earlier)
        search = Search.objects.create(
            project=project,
            stream=create_stream(project=project, kind="search"),
            name=form.name,
            environment_version=version,
            rubric_version=form.rubric_version,
            model=form.model,
            seed_harness=harness,
            settings=form.settings.to_json(),
            seed=seed,
            created_by=created_by,
        )
        # As it is kept, so that the hash of the settings is that of what comes out of the database.
        search.refresh_from_db()
        search.fingerprints = fingerprints.fingerprints_of(search)
        search.save(update_fields=["fingerprints"])
        open_accounts(search, form.settings)
        queue_advance(search_id=search.pk, after="start")
    return search


def pause_search(*, actor: User, search: Search) -> None:
    """Work in hand ends first: the run under way."""
    require(actor, search.project, Role.EDITOR)
    with transaction.atomic():
        if not pause_for(search=search, reason=""):
            raise SearchRefused(f"{search} is {_state(search)}; it cannot be paused.")


def resume_search(*, actor: User, search: Search) -> None:
    """Also a failed search: what its run did not get done is asked for again."""
    require(actor, search.project, Role.EDITOR)
    resume(search=search)


def resume(*, search: Search) -> None:
    """Raises SearchRefused; with other data than it began with a search does not go on."""
    with transaction.atomic():
        search.refresh_from_db()
        if problem := fingerprints.changed(search):
            raise SearchRefused(problem)
        now = timezone.now()
        state = SearchState.RUNNING if search.started_at else SearchState.QUEUED
        changed = Search.objects.filter(
            pk=search.pk, state__in=(SearchState.PAUSED, SearchState.FAILED)
        ).update(state=state, error="", resumed_at=now, ended_at=None)
        if not changed:
            raise SearchRefused(f"{search} is {_state(search)}; it is not paused.")
        search.refresh_from_db()
        tell_state(search, state)
        queue_advance(search_id=search.pk, after=f"resume-{now.timestamp():.6f}")


def cancel_search(*, actor: User, search: Search) -> None:
    """Ends the search; its run is cancelled, what was measured stays."""
    require(actor, search.project, Role.EDITOR)
    with transaction.atomic():
        if not end_cancelled(search=search):
            raise SearchRefused(f"{search} is {_state(search)}; it has ended.")
        # Runs are cancelled by the job too: this process may end before it comes to that.
        queue_advance(search_id=search.pk, after="cancel")
    cancel_runs(search)


def set_budget(*, actor: User, search: Search, budget: BudgetSettings) -> None:
    """Other caps, of which none may be below what is spent or set aside. Raises SearchRefused.

    The number of rollouts is a part of what the search does next and stays as it was planned.
    """
    require(actor, search.project, Role.EDITOR)
    if search.has_ended:
        raise SearchRefused(f"{search} is {_state(search)}; it spends nothing any more.")
    before = SearchSettings.from_json(search.settings)
    if budget.rollouts != before.budget.rollouts:
        raise SearchRefused(
            "The number of rollouts decides how the search is laid out; it cannot change on the "
            "way. Start another search with more of them."
        )
    after = replace(before, budget=budget)
    with transaction.atomic():
        if problem := raise_caps(search, before, after):
            raise SearchRefused(problem)
        search.settings = after.to_json()
        search.save(update_fields=["settings"])
        say(search, f"{actor} changed the budget.")


def nudge(*, actor: User, search: Search, text: str) -> Nudge:
    """A comment that the next reflection reads. Raises SearchRefused."""
    require(actor, search.project, Role.EDITOR)
    text = storable(text).strip()
    if not text or len(text) > MAX_NUDGE:
        raise SearchRefused(f"A nudge has 1 to {MAX_NUDGE:,} characters.")
    if search.has_ended:
        raise SearchRefused(f"{search} is {_state(search)}; nothing is proposed any more.")
    return Nudge.objects.create(search=search, text=text, created_by=actor)


def approve(*, actor: User, search: Search, note: str = "") -> Release:
    """Releases what the search found, on its certificate. Raises SearchRefused."""
    require(actor, search.project, Role.EDITOR)
    with transaction.atomic():
        _decide(search)
        harness = HarnessVersion.objects.get(pk=search.outcome["shipped"])
        assert search.environment_version is not None
        release = releases.release(
            actor=actor,
            environment=search.environment_version.environment,
            harness=harness,
            search=search,
            certificate=_certificate_of(search),
            note=storable(note),
        )
        say(search, f"{actor} approved {harness}: release {release.pk}.")
        complete_search(search=search, verdict=str(search.outcome.get("verdict", "")))
    return release


def _certificate_of(search: Search) -> Comparison | None:
    """That of the winner; of several the newest need not be the one."""
    return (
        search.comparisons.filter(
            method="e_process", details__harness=search.outcome.get("winner_sha256")
        )
        .order_by("-id")
        .first()
    )


def decline(*, actor: User, search: Search, note: str = "") -> None:
    """The seed stays; what was measured stays too. Raises SearchRefused."""
    require(actor, search.project, Role.EDITOR)
    note = storable(note)
    with transaction.atomic():
        _decide(search)
        say(search, f"{actor} declined what was found.{' ' + note.strip() if note.strip() else ''}")
        complete_search(search=search, verdict=str(search.outcome.get("verdict", "")))


def _decide(search: Search) -> None:
    """Needs a transaction: one decision counts."""
    waited = Search.objects.filter(pk=search.pk, state=SearchState.AWAITING_APPROVAL).update(
        phase=SearchPhase.DONE
    )
    search.refresh_from_db()
    if not waited:
        raise SearchRefused(f"{search} is {_state(search)}; nothing waits for approval.")


def _state(search: Search) -> str:
    search.refresh_from_db(fields=["state"])
    return search.get_state_display()
