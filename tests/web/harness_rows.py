"""A library of harnesses as rows: people's, a search's, released ones. No worker takes part."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from optimizer.harness import Demonstration, Harness, Limits, Pick, Picking, Sampling
from optimizer.models import Candidate, Comparison, HarnessVersion, Release, Search
from optimizer.skills import Skill
from optimizer.store import store_harness
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.runs.models import Run
from orchestrator.searches import releases
from tests.base import People
from tests.web.build import make_environment, make_rollout, make_run, tasks_of

INSTRUCTIONS = """You answer questions about the files of a folder.

One shell command per reply. Look before you answer.

When you know the answer, reply with `answer: …` and nothing else.
"""
BETTER = INSTRUCTIONS.replace("Look before you answer.", "List the files before you count.") + (
    "\nNever open a file with an editor.\n"
)
COUNTING = Skill(
    "count-lines",
    "Counts lines, words and matches in files. Use when a question asks how many.",
    "1. `ls -la` to see the files.\n2. `wc -l < FILE` for lines, `grep -c PATTERN FILE` for "
    "matches.\n3. Answer with the bare number.\n",
    {"license": "MIT", "metadata": {"hc-version": "1"}},
)
DATES = Skill("dates", "Reads and compares dates in logs. Use for questions about when.", "Sort.\n")
TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "search",
        "description": "Finds invoices by words of their subject.",
        "parameters": {"properties": {"query": {"description": "Two or three words."}}},
    },
)


def demonstration(key: str, question: str, command: str, answer: str) -> Demonstration:
    turns = ("user", question), ("assistant", command), ("user", answer)
    messages = [{"role": role, "content": text} for role, text in turns]
    messages.append({"role": "assistant", "content": f"answer: {answer}"})
    return Demonstration(key, tuple(messages), key)


SEED = Harness(
    instructions=INSTRUCTIONS,
    sampling=Sampling(max_tokens=64, stop=("\n",)),
    limits=Limits(8),
)
FULL = Harness(
    instructions=BETTER,
    skills=(COUNTING, DATES),
    demonstrations=(
        demonstration("train-0007", "How many lines has list7.txt?", "wc -l < list7.txt", "12"),
        demonstration("train-0011", "How many words has list11.txt?", "wc -w < list11.txt", "340"),
    ),
    tools=TOOLS,
    sampling=Sampling(temperature=0.2, max_tokens=64, stop=("\n",)),
    limits=Limits(8),
    picking=Picking(Pick.NEAREST, 2),
    files={
        "skills/count-lines/references/wc.md": "wc counts lines, words and bytes.\n",
        "skills/count-lines/evals/triggers.json": json.dumps(
            [{"query": "How many?", "should_trigger": True}]
        ),
    },
)


@dataclass(frozen=True)
class Shelf:
    seed: HarnessVersion
    full: HarnessVersion
    tried: HarnessVersion
    search: Search
    version: EnvironmentVersion
    run: Run
    release: Release


def make_shelf(people: People) -> Shelf:
    """A seed, what a search made of it (certified, released), and one that it only tried."""
    project = people.project

    def store(harness: Harness, label: str = "") -> HarnessVersion:
        return store_harness(project_id=project.pk, harness=harness, label=label)

    seed, full = store(SEED, "seed"), store(FULL, "support agent")
    tried = store(Harness(instructions="Answer at once.\n"))
    version = make_environment(project, tasks=8)
    search = Search.objects.create(
        project=project,
        stream=create_stream(project=project, kind="search"),
        name="Files, spring",
        state="completed",
        phase="done",
        environment_version=version,
        seed_harness=seed,
        seed=1,
    )
    root = Candidate.objects.create(search=search, harness=seed, status="screening", key="seed")
    for harness, status in ((full, "certified"), (tried, "rejected")):
        Candidate.objects.create(
            search=search,
            harness=harness,
            status=status,
            parent=root,
            relation="mutate",
            key=harness.short,
        )
    certificate = Comparison.objects.create(
        project=project,
        search=search,
        split="select",
        method="e_process",
        verdict="improved",
        pairs=80,
        coverage=0.99,
        difference=0.142,
        low=0.061,
        high=0.223,
        e_value=41.0,
        alpha=0.05,
        details={"harness": full.sha256, "seed_harness": seed.sha256, "number": 1},
    )
    environment = version.environment
    releases.release(actor=people.owner, environment=environment, harness=seed, note="To begin.")
    release = releases.release(
        actor=people.owner,
        environment=environment,
        harness=full,
        search=search,
        certificate=certificate,
        note="Certified, +14 points.",
    )
    run = make_run(project, environment_version=version, label="Select, both harnesses")
    for number, task in enumerate(tasks_of(run)):
        score = 1.0 if number % 3 else 0.0
        make_rollout(run, task, harness=seed, score=float(number % 2))
        rollout = make_rollout(run, task, harness=full, score=score)
        if number % 3:
            loaded = {"name": "count-lines", "file": "", "text": "load_skill: count-lines"}
            told = {**loaded, "content": COUNTING.body, "tokens": 9, "latency_s": 0.4}
            append(stream_id=rollout.stream_id, items=[NewEvent("skill.loaded", told)])
    return Shelf(seed, full, tried, search, version, run, release)
