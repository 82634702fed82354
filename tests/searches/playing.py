"""Searches whose rollouts are scored by a rule in this process: the product's rows and ledger,
without servers. What a rollout scores is a function of its harness, task and replicate.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from django.utils import timezone

from optimizer.harness import Harness
from optimizer.models import Search
from optimizer.store import load_harness
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from orchestrator.jobs import lease
from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, handler_for
from orchestrator.projects.models import Project
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, Run
from orchestrator.runs.services import finish_run, mark_running
from orchestrator.searches.services import SearchForm, start_search
from orchestrator.searches.settings import SearchSettings
from tests.base import People
from tests.runs.drive import FINISH, make_endpoint, make_harness, make_rubric

COUNTS = {"train": 12, "select": 10, "test": 8}
QUICK: dict[str, Any] = {
    "engine_settings": {
        "evidence": 6,
        "wave_blocks": 6,
        "entry_support": 1,
        "race_candidates": 2,
        "race_share": 0.2,
        "max_demonstrations": 3,
    },
    "proposer_settings": {
        "offline": {
            "operators": ["demonstrations.reference", "demonstrations.success", "instructions"],
            "most": {"demonstrations.reference": 4, "demonstrations.success": 0},
        }
    },
    "budget": {"rollouts": 104},
    "certify_pairs": 16,
    "certify_batch": 8,
}

PRICES = {"cheap": 0.0002, "poor": 0.0001}
"""US dollars of a rollout on other models than the search's own."""

Rule = Callable[[Harness, Rollout], float | None]
"""Score of a rollout; None: it is lost to infrastructure."""


def demonstrations_help(harness: Harness, rollout: Rollout) -> float | None:
    rate = (0.05, 0.55, 0.8, 0.95)[min(3, len(harness.demonstrations))]
    draw = random.Random(f"{harness.sha256}/{rollout.task.key}/{rollout.replicate}")
    return float(draw.random() < rate)


def nothing_helps(harness: Harness, rollout: Rollout) -> float | None:
    draw = random.Random(f"{harness.sha256}/{rollout.task.key}/{rollout.replicate}")
    return float(draw.random() < 0.4)


def make_version(project: Project, counts: Mapping[str, int] = COUNTS) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=project,
        slug=f"played-{Environment.objects.count()}",
        name="Played",
        kind=EnvironmentKind.URL,
    )
    return create_version(
        environment=environment,
        source={"base_url": "http://127.0.0.1:9"},
        tasks=[
            NewTask(
                key=f"{split}-{i}",
                split=split,
                family="red" if i % 2 else "green",
                prompt=f"{split} task {i}",
                reference=[{"role": "assistant", "content": FINISH}] if split == "train" else None,
            )
            for split, n in counts.items()
            for i in range(n)
        ],
    )


def make_form(project: Project, counts: Mapping[str, int] = COUNTS, **settings: Any) -> SearchForm:
    return SearchForm(
        name="Played",
        environment_version=make_version(project, counts),
        rubric_version=make_rubric(project),
        model=make_endpoint(project, "http://127.0.0.1:9"),
        seed_harness=make_harness(project),
        settings=SearchSettings.from_json({**QUICK, **settings}),
    )


def start(people: People, form: SearchForm | None = None, **settings: Any) -> Search:
    form = form or make_form(people.project, **settings)
    return start_search(actor=people.editor, project=people.project, form=form, seed=7)


def play(
    rule: Rule = demonstrations_help,
    *,
    until: Callable[[], bool] = lambda: False,
    limit: int = 400,
) -> None:
    """Works on the queued jobs, oldest first; runs are played by the rule."""
    for _ in range(limit):
        job = Job.objects.filter(state=JobState.QUEUED).order_by("id").first()
        if job is None or until():
            return
        if job.kind == "runs.execute":
            play_run(job, rule)
        else:
            move(job)
    raise AssertionError(f"more than {limit} jobs")


def move(job: Job) -> None:
    """As a worker does, without a heartbeat: so it works inside the transaction of a test."""
    claimed = lease.claim(job.pk)
    if claimed is None:
        return
    ctx = JobContext(job.pk, claimed.job.spec, claimed.fence, threading.Event())
    try:
        handler_for(job.kind).run(ctx)
    except Cancelled:
        lease.cancelled(claimed.fence)
    else:
        lease.finish(claimed.fence)


def play_run(job: Job, rule: Rule, *, only: Callable[[int], bool] = lambda i: True) -> None:
    """As a worker does; with `only` it is killed before it comes to the others."""
    claimed = lease.claim(job.pk)
    if claimed is None:
        return
    run = Run.objects.get(pk=job.spec["run_id"])
    mark_running(run=run, fence=claimed.fence)
    harnesses: dict[int, Harness] = {}
    still_open = run.rollouts.filter(state__in=OPEN_ROLLOUT_STATES).select_related(
        "task", "harness"
    )
    left = False
    for i, rollout in enumerate(still_open.order_by("id")):
        if not only(i):
            left = True
            continue
        harness = harnesses.setdefault(rollout.harness_id, load_harness(rollout.harness))
        end(rollout, rule(harness, rollout), usd=PRICES.get(harness.model, 0.001))
    if left:
        lease.release(claimed.fence)
        return
    finish_run(run=run, fence=claimed.fence)
    lease.finish(claimed.fence)


def end(rollout: Rollout, score: float | None, usd: float = 0.001) -> None:
    rollout.attempt, rollout.ended_at = 1, timezone.now()
    rollout.tokens_in, rollout.tokens_out, rollout.cost_usd = 90, 10, usd
    rollout.latency_s = 0.5
    if score is None:
        rollout.state, rollout.cause = RolloutState.ERRORED, "model_unreachable"
        rollout.message = "The model was away. No score."
    else:
        rollout.state, rollout.score, rollout.reward = RolloutState.SCORED, score, score
    rollout.save()


def facts(search: Search) -> list[tuple[str, str, str, int]]:
    """Which rollouts the search has asked for; one that was asked for twice is here twice."""
    rows = Rollout.objects.filter(run__search_run__search=search)
    return sorted(
        rows.values_list("run__search_run__phase", "harness__sha256", "task__key", "replicate")
    )
