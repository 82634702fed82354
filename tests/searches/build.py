"""Searches over real servers whose model does what a script says (see `tests.climbs.ladder`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optimizer.models import Search
from orchestrator.events.models import Event
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.projects.models import Project
from orchestrator.searches.services import SearchForm, start_search
from orchestrator.searches.settings import SearchSettings
from tests.base import People
from tests.climbs.ladder import make_tasks
from tests.runs.drive import make_endpoint, make_harness, make_rubric

SMALL: dict[str, Any] = {
    "engine_settings": {
        "evidence": 4,
        "wave_blocks": 6,
        "entry_support": 1,
        "race_candidates": 2,
        "race_share": 0.3,
        "max_demonstrations": 2,
    },
    "proposer_settings": {
        "offline": {
            "operators": ["demonstrations.reference", "demonstrations.success", "instructions"],
            "most": {"demonstrations.reference": 2, "demonstrations.success": 1},
        }
    },
    "budget": {"rollouts": 90},
    "certify_pairs": 12,
    "certify_batch": 6,
    "concurrency": 8,
}


def form(project: Project, *, base_url: str, model_url: str, **settings: Any) -> SearchForm:
    version = make_tasks(project, base_url)
    # The limits of the product: a busy machine must not look like a broken environment.
    version.settings = {}
    version.save(update_fields=["settings"])
    return SearchForm(
        name="A search",
        environment_version=version,
        rubric_version=make_rubric(project),
        model=make_endpoint(project, model_url),
        seed_harness=make_harness(project),
        settings=SearchSettings.from_json({**SMALL, **settings}),
    )


def make_search(
    people: People,
    *,
    base_url: str = "http://127.0.0.1:9",
    model_url: str = "http://127.0.0.1:9",
    **settings: Any,
) -> Search:
    return start_search(
        actor=people.editor,
        project=people.project,
        form=form(people.project, base_url=base_url, model_url=model_url, **settings),
        seed=5,
    )


def work(until: Callable[[], bool] = lambda: False, *, limit: int = 200) -> int:
    """Works on queued jobs, oldest first, until none is left. Their number."""
    for done in range(limit):
        job = Job.objects.filter(state=JobState.QUEUED).order_by("id").first()
        if job is None or until():
            return done
        run_attempt(job.pk)
    raise AssertionError(f"more than {limit} jobs")


def told(search: Search, kind: str) -> list[dict[str, Any]]:
    """Payloads of one kind on the search's stream, in order."""
    assert search.stream_id is not None
    events = Event.objects.filter(stream_id=search.stream_id, kind=kind).order_by("seq")
    return [event.payload for event in events]
