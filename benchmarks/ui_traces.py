"""Rollouts with very long traces, written as rows: the reference size has 32,843 events.

Seeded: the same rows each time. Commands, outputs of one to some hundred lines (some of them in
colour), verdicts that cite steps deep inside, all about 1 kB each.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from benchmarks.past_rollouts import make_tasks
from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.events.models import Event, Stream
from orchestrator.events.services import create_stream
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric, RubricVersion

REFERENCE_EVENTS = 32_843
NEEDLE = "the needle of this haystack"
"""Stands in one output, four fifths of the way."""
_WORDS = "amber birch cedar delta ember falcon grove harbor indigo juniper lumen"
_SECOND = timedelta(seconds=1)


def write_long_rollout(
    project: Project, *, n_events: int = REFERENCE_EVENTS, seed: int = 0, state: str = "scored"
) -> Rollout:
    """A rollout of `n_events` events in a run of its own."""
    chance = random.Random(seed)
    version = make_tasks(project, 1)
    rubric = Rubric.objects.create(project=project, name=f"answer {seed} of {n_events}")
    spec = {"criteria": [{"id": "correct", "kind": "environment_reward", "weight": 1}]}
    now = timezone.now()
    run = Run.objects.create(
        project=project,
        stream=create_stream(project=project, kind="run"),
        environment_version=version,
        rubric_version=RubricVersion.objects.create(
            rubric=rubric, number=1, spec=spec, sha256="ab" * 32
        ),
        model=ModelEndpoint.objects.create(
            project=project, name=f"m{seed}-{n_events}", kind=EndpointKind.LOCAL, model="m"
        ),
        purpose="evaluate",
        label="A long trace",
        state="completed" if state == "scored" else "running",
        started_at=now,
        ended_at=now if state == "scored" else None,
    )
    stream = create_stream(project=project, kind="rollout")
    n_steps = (n_events - 4) // 2
    rollout = Rollout.objects.create(
        run=run,
        stream=stream,
        task=version.tasks.get(),
        harness=store_harness(project_id=project.pk, harness=Harness(instructions="Act.\n")),
        seed=seed,
        state=state,
        score=1.0 if state == "scored" else None,
        attempt=1,
        n_steps=n_steps,
    )
    payloads = _payloads(n_events, chance, is_ended=state == "scored")
    rows = (
        Event(stream=stream, seq=i, kind=kind, payload=payload, at=now + 0.3 * i * _SECOND)
        for i, (kind, payload) in enumerate(payloads, start=1)
    )
    Event.objects.bulk_create(rows, batch_size=500)
    Stream.objects.filter(pk=stream.pk).update(last_seq=n_events)
    for kind, payload in payloads:
        if kind == "verdict":
            names = ("criterion", "name", "state", "value", "reason", "cites")
            VerdictRecord.objects.create(rollout=rollout, **{name: payload[name] for name in names})
    return rollout


def _payloads(
    n_events: int, chance: random.Random, *, is_ended: bool
) -> list[tuple[str, dict[str, Any]]]:
    made: list[tuple[str, dict[str, Any]]] = [
        (
            "rollout.started",
            {"attempt": 1, "prompt": "Sort what is in this folder.", "messages": []},
        )
    ]
    n_last = 3 if is_ended else 0
    needle_at = int(n_events * 0.8)
    step = 0
    while len(made) < n_events - n_last:
        if len(made) % 2:
            step += 1
            made.append(("action", action(step, chance)))
        else:
            made.append(("observation", observation(step, chance, len(made) >= needle_at)))
            needle_at = n_events if len(made) > needle_at else needle_at
    if is_ended:
        for number in range(2):
            seq = 3 + 2 * (len(made) // (5 - number))
            made.append(("verdict", _verdict(number, seq)))
        made.append(("rollout.ended", {"state": "scored", "score": 1.0, "steps": step}))
    return made


def action(step: int, chance: random.Random) -> dict[str, Any]:
    words = " ".join(chance.choices(_WORDS.split(), k=chance.randint(1, 4)))
    command = (
        f"grep -rn '{words}' src/{chance.choice(_WORDS.split())} | sort -k2 | head -{step % 40 + 1}"
    )
    return {
        "step": step,
        "text": command,
        "form": "command",
        "command": command,
        "answer": None,
        "accepted": True,
        "reason": "",
        "tokens": len(command) // 4,
        "logprob": -chance.random() * 9,
        "latency_s": round(chance.random() * 3, 2),
        "finish_reason": "stop",
    }


def observation(step: int, chance: random.Random, has_needle: bool = False) -> dict[str, Any]:
    n_lines = chance.choice([1, 2, 3, 5, 8, 20, 60]) if step % 50 else 400
    lines = [" ".join(chance.choices(_WORDS.split(), k=9)) for _ in range(n_lines)]
    if step % 7 == 0:
        lines[0] = f"\x1b[1;31mFAILED\x1b[0m {lines[0]}"
    if has_needle:
        lines.append(NEEDLE)
    return {
        "step": step,
        "segments": [
            {"kind": "env_output", "text": "\n".join(lines) + "\n"},
            {"kind": "scaffold", "text": f"[exit status {int(step % 7 == 0)}]"},
        ],
        "exit_status": int(step % 7 == 0),
        "truncated": False,
        "reward": 0.25 if step % 100 == 0 else None,
        "done": False,
        "latency_s": 0.1,
    }


def _verdict(number: int, seq: int) -> dict[str, Any]:
    return {
        "criterion": f"c{number}",
        "name": ["The folder is sorted", "Nothing is lost"][number],
        "state": "scored",
        "value": 1.0 - number / 4,
        "reason": "seen in the output",
        "cites": [seq],
    }
