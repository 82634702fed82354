"""Searches with rollouts as rows, and proposers that are asked over real HTTP in virtual time."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from optimizer.edits import Edit
from optimizer.engines.contract import SEED, Ask, Candidate
from optimizer.harness import Harness
from optimizer.models import Proposal, Search, SearchRun
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.jobs import lease
from orchestrator.jobs.models import Job
from orchestrator.jobs.registry import JobContext
from orchestrator.judging.accounts import open_account
from orchestrator.projects.models import Project
from orchestrator.proposing import services
from orchestrator.proposing.answering import answer_proposal
from orchestrator.proposing.calls import Clock
from orchestrator.proposing.terms import Terms
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.doubles.model_server import ScriptedModel

_numbers = itertools.count(1)
SEALED = "Which of the three invoices of May is still unpaid today, and why is it?"
RUBRIC = {
    "criteria": [
        {"id": "right", "name": "Is right", "kind": "environment_reward", "weight": 5},
        {"id": "barred", "name": "Barred one", "kind": "environment_reward", "weight": 1},
    ]
}
GOOD: dict[str, Any] = {
    "op": "append",
    "component": "instructions.md",
    "anchor": "",
    "content": "Look at the file before you answer.",
    "tasks": ["train-0", "train-1"],
    "why": "it guessed",
}


def said(*entries: dict[str, Any], cause: str = "It guesses.", field: str = "edits") -> str:
    return json.dumps({"cause": cause, field: list(entries or (GOOD,))})


def make_search(
    project: Project,
    model: ScriptedModel | None = None,
    *,
    harness: Harness | None = None,
    tasks: int = 4,
    **endpoint: Any,
) -> Search:
    """Its seed failed every other train task; nothing has been proposed."""
    number = next(_numbers)
    environment = Environment.objects.create(
        project=project, slug=f"files-{number}", name="Files", kind=EnvironmentKind.TERMINAL
    )
    version = create_version(
        environment=environment,
        source={},
        tasks=[
            *(
                NewTask(key=f"train-{i}", split="train", prompt=f"Train question {i}.")
                for i in range(tasks)
            ),
            NewTask(key="select-0", split="select", prompt=SEALED, spec={"answer": "the second"}),
            NewTask(key="test-0", split="test", prompt="Sealed question."),
        ],
    )
    rubric = create_rubric_version(
        rubric=Rubric.objects.create(project=project, name=f"r{number}"), spec=RUBRIC
    )
    row = ModelEndpoint.objects.create(
        project=project,
        **{
            "name": f"m{number}",
            "kind": EndpointKind.OPENAI,
            "base_url": model.url if model else "http://127.0.0.1:9",
            "model": model.name if model else "none",
            "price_in_usd_per_mtok": 1.0,
            "price_out_usd_per_mtok": 2.0,
            **endpoint,
        },
    )
    seed = store_harness(
        project_id=project.pk, harness=harness or Harness(instructions="Answer questions.\n")
    )
    search = Search.objects.create(
        project=project,
        stream=create_stream(project=project, kind="search"),
        environment_version=version,
        rubric_version=rubric,
        model=row,
        seed_harness=seed,
        seed=7,
    )
    run = Run.objects.create(
        project=project,
        stream=create_stream(project=project, kind="run"),
        purpose="optimise",
        state="completed",
        environment_version=version,
        rubric_version=rubric,
        model=row,
    )
    left_out = {"barred": "it lies"}
    SearchRun.objects.create(search=search, run=run, phase="evidence", left_out=left_out)
    for i, task in enumerate(version.tasks.order_by("key")):
        make_rollout(search, task.key, score=float(i % 2))
    return search


def make_rollout(search: Search, task: str, *, score: float, **events: Any) -> Rollout:
    """Of the seed in the search's run; one command, then an answer."""
    run = search.search_runs.get().run
    rollout = Rollout.objects.create(
        run=run,
        stream=create_stream(project=run.project, kind="rollout"),
        harness=search.seed_harness,
        task=run.environment_version.tasks.get(key=task),
        replicate=next(_numbers),
        seed=next(_numbers),
        state="scored",
        score=score,
        attempt=1,
    )
    action = {"step": 1, "text": f"cat {task}.txt", "command": f"cat {task}.txt", "answer": None}
    observed = {"segments": [{"kind": "env_output", "text": f"text of {task}"}], "exit_status": 0}
    append(
        stream_id=rollout.stream_id,
        items=[
            NewEvent("action", {**action, **events.get("action", {})}),
            NewEvent("observation", {"step": 1, **observed, **events.get("observation", {})}),
            NewEvent("action", {"step": 2, "text": "answer: 3", "command": None, "answer": "3"}),
            NewEvent("observation", {"step": 2, "segments": [], "done": True}),
        ],
    )
    for criterion in ("right", "barred"):
        VerdictRecord.objects.create(
            rollout=rollout,
            criterion=criterion,
            name="Is right" if criterion == "right" else "Barred one",
            state="scored",
            value=score,
            reason=f"{criterion} says {score:g}",
            cites=[2],
        )
    return rollout


# --- asking --------------------------------------------------------------------------------------


@dataclass
class VirtualTime:
    """Passes only while somebody sleeps."""

    now: float = 1_000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.now, sleep=self.sleep)


def ask(
    search: Search,
    proposer: str = "reflection",
    *,
    round: int = 0,
    parent: Candidate = SEED,
    rewrite: bool = False,
    **terms: Any,
) -> Proposal:
    """Asked and queued."""
    with transaction.atomic():
        (proposal,) = services.ask(
            search=search,
            ask=Ask(round, parent, (), rewrite),
            proposers={proposer: Terms.from_json(terms)},
        )
    return proposal


def job_of(proposal: Proposal) -> Job:
    return Job.objects.get(key=f"proposal-{proposal.pk}")


def work(proposal: Proposal, time: VirtualTime | None = None) -> Proposal:
    """One attempt of its job, in this thread."""
    claim = lease.claim(job_of(proposal).pk)
    assert claim is not None
    context = JobContext(claim.job.pk, claim.job.spec, claim.fence, threading.Event())
    answer_proposal(context, clock=(time or VirtualTime()).clock)
    lease.finish(claim.fence)
    proposal.refresh_from_db()
    return proposal


def answered(search: Search, proposer: str = "reflection", **asked: Any) -> Proposal:
    return work(ask(search, proposer, **asked))


def cap(search: Search, unit: str, amount: float) -> None:
    open_account(scope=f"search:{search.pk}", role="proposer", unit=unit, cap=amount)


def edits_of(proposal: Proposal) -> list[Edit]:
    return [Edit.from_json(data) for data in proposal.edits]


def findings_of(proposal: Proposal) -> str:
    return " | ".join(text for item in proposal.refused for text in item["findings"])
