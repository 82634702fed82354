"""A large project, seeded: 100,000 rollouts in 200 runs with 1,000,000 events, or as many as asked.

Rows are written as tables, not by services: what is measured is reading. Words follow Zipf's law
over a vocabulary of 20,000, and there is one rare and one common word that searches look for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from benchmarks.ui_lists import COMMON, N_ROLLOUTS, RARE
from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion, Task
from orchestrator.events.models import Event, Stream
from orchestrator.events.search_index import write_words
from orchestrator.events.search_text import event_words, tsvector
from orchestrator.events.services import create_stream
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric, RubricVersion

ROLLOUTS_PER_RUN = 500
EVENTS_EACH = 10
N_WORDS = 20_000
_SYLLABLES = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ka",
    "le",
    "mi",
    "no",
    "pu",
    "ra",
    "se",
    "ti",
    "vo",
    "wu",
    "za",
]
_AT_ONCE = 2_000


def write_large_project(
    project: Project, *, n_rollouts: int = N_ROLLOUTS, seed: int = 0, n_words: int = 40
) -> None:
    """Fills `project`; the same rows for the same seed, but for their ids and times.

    `n_words`: of an observation.
    """
    chance = random.Random(seed)
    words = _vocabulary()
    version, tasks = _environment(project)
    rubric = _rubric(project)
    models = [
        ModelEndpoint.objects.create(
            project=project, name=f"model-{n}", kind=EndpointKind.LOCAL, model="m"
        )
        for n in range(3)
    ]
    harnesses = [
        store_harness(project_id=project.pk, harness=Harness(instructions=f"Act {n}.\n"))
        for n in range(12)
    ]
    now = timezone.now()
    n_runs = -(-n_rollouts // ROLLOUTS_PER_RUN)
    for number in range(n_runs):
        at = now - timedelta(hours=n_runs - number)
        run = Run.objects.create(
            project=project,
            stream=create_stream(project=project, kind="run"),
            environment_version=version,
            rubric_version=rubric,
            model=models[number % 3],
            purpose=("evaluate", "train", "optimise", "ci")[number % 4],
            label=f"large {number}",
            state="completed",
            sampling={"temperature": (number % 10) / 10},
            started_at=at,
            ended_at=at + timedelta(minutes=20),
        )
        n = min(ROLLOUTS_PER_RUN, n_rollouts - number * ROLLOUTS_PER_RUN)
        with transaction.atomic():
            _write_run(run, n, tasks, harnesses[number % 12].pk, words, chance, n_words)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _write_run(
    run: Run,
    n: int,
    tasks: Sequence[Task],
    harness_id: int,
    words: tuple[Sequence[str], Sequence[float]],
    chance: random.Random,
    n_words: int,
) -> None:
    streams = Stream.objects.bulk_create(
        [Stream(project_id=run.project_id, kind="rollout", last_seq=EVENTS_EACH) for _ in range(n)],
        batch_size=_AT_ONCE,
    )
    rollouts, verdicts, events = [], [], []
    for i, stream in enumerate(streams):
        task = tasks[i % len(tasks)]
        state = chance.choices(("scored", "errored", "not_applicable"), (92, 6, 2))[0]
        score = round(chance.betavariate(2, 1.5), 3) if state == "scored" else None
        assert run.started_at is not None
        at = run.started_at + timedelta(seconds=i)
        rollouts.append(
            Rollout(
                run=run,
                stream=stream,
                harness_id=harness_id,
                task=task,
                replicate=i // len(tasks),
                seed=i,
                state=state,
                score=score,
                attempt=1,
                cause="" if state == "scored" else "session_lost",
                message="" if state == "scored" else "The environment server went away.",
                answer=_text(words, chance, 6),
                n_steps=(EVENTS_EACH - 2) // 2,
                tokens_in=chance.randint(200, 9_000),
                tokens_out=chance.randint(20, 900),
                cost_usd=round(chance.random() / 20, 5),
                latency_s=round(chance.lognormvariate(2.5, 0.8), 2),
                started_at=at,
                ended_at=at + timedelta(seconds=30),
            )
        )
        events += [
            (stream.pk, seq, kind, payload, at + timedelta(seconds=seq))
            for seq, (kind, payload) in enumerate(
                _payloads(task, (state, score), words, chance, n_words), start=1
            )
        ]
    for rollout in Rollout.objects.bulk_create(rollouts, batch_size=500):
        for criterion in ("correct", "tidy"):
            value = round(chance.random(), 2) if rollout.score is not None else None
            verdicts.append(
                VerdictRecord(
                    rollout=rollout,
                    criterion=criterion,
                    name=criterion,
                    state="scored" if value is not None else "errored",
                    value=value,
                    reason="seen",
                )
            )
    VerdictRecord.objects.bulk_create(verdicts, batch_size=_AT_ONCE)
    _write_events(run.project_id, events)


def _write_events(project_id: int, events: list[tuple[int, int, str, dict[str, Any], Any]]) -> None:
    if connection.vendor == "postgresql":
        _copy_events(project_id, events)
        return
    made = Event.objects.bulk_create(
        [
            Event(stream_id=stream_id, seq=seq, kind=kind, payload=payload, at=at)
            for stream_id, seq, kind, payload, at in events
        ],
        batch_size=_AT_ONCE,
    )
    with connection.cursor() as cursor:

        def execute(sql: str, params: Sequence[Any]) -> Sequence[Any]:
            cursor.execute(sql, params)
            return ()

        rows = [(e.pk, project_id, e.stream_id, event_words(e.kind, e.payload)) for e in made]
        write_words(execute, connection.vendor, rows)


def _copy_events(project_id: int, events: list[tuple[int, int, str, dict[str, Any], Any]]) -> None:
    """By COPY, with ids of the table's own sequence."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence('events_event', 'id'))"
            " FROM generate_series(1, %s)",
            [len(events)],
        )
        ids = [number for (number,) in cursor.fetchall()]
        columns = "events_event (id, stream_id, seq, kind, payload, at)"
        with cursor.copy(f"COPY {columns} FROM STDIN") as copy:
            for number, (stream_id, seq, kind, payload, at) in zip(ids, events, strict=True):
                copy.write_row((number, stream_id, seq, kind, json.dumps(payload), at))
        with cursor.copy("COPY events_text (event_id, words) FROM STDIN") as copy:
            for number, (stream_id, _, kind, payload, _) in zip(ids, events, strict=True):
                if words := event_words(kind, payload):
                    scopes = [f"p{project_id}", f"s{stream_id}"]
                    copy.write_row((number, tsvector(words, scopes)))


def _payloads(
    task: Task,
    ended: tuple[str, float | None],
    words: tuple[Sequence[str], Sequence[float]],
    chance: random.Random,
    n_words: int,
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "rollout.started", {"attempt": 1, "task": task.key, "prompt": task.prompt, "messages": []}
    for step in range(1, EVENTS_EACH // 2):
        command = f"grep -rn '{_text(words, chance, 2)}' src | head -{step}"
        yield "action", {"step": step, "text": command, "form": "command", "command": command}
        output = _text(words, chance, n_words)
        if chance.random() < 0.5:
            output += f" {COMMON}"
        if chance.random() < 0.0001:
            output += f" {RARE}"
        segments = [{"kind": "env_output", "text": output}]
        yield "observation", {"step": step, "segments": segments, "exit_status": step % 2}
    state, score = ended
    yield "rollout.ended", {"state": state, "score": score, "steps": EVENTS_EACH // 2 - 1}


def _vocabulary() -> tuple[list[str], list[float]]:
    """Words and the cumulative weights of their use."""
    words = []
    for n in range(N_WORDS):
        digits, text = n, ""
        for _ in range(4):
            digits, rest = divmod(digits, len(_SYLLABLES))
            text = _SYLLABLES[rest] + text
        words.append(text)
    return words, list(accumulate(1 / (rank + 10) for rank in range(N_WORDS)))


def _text(words: tuple[Sequence[str], Sequence[float]], chance: random.Random, n: int) -> str:
    return " ".join(chance.choices(words[0], cum_weights=words[1], k=n))


def _environment(project: Project) -> tuple[EnvironmentVersion, list[Task]]:
    environment = Environment.objects.create(
        project=project, slug="large", name="Large", kind=EnvironmentKind.TERMINAL
    )
    version = EnvironmentVersion.objects.create(environment=environment, number=1, sha256="1a" * 32)
    Task.objects.bulk_create(
        Task(
            version=version,
            key=f"{split}-{n:04d}",
            split=split,
            family=("count", "sort", "find")[n % 3],
            prompt=f"Sort list{n}.txt.",
        )
        for split in ("train", "select", "test")
        for n in range(40)
    )
    return version, list(version.tasks.order_by("key"))


def _rubric(project: Project) -> RubricVersion:
    rubric = Rubric.objects.create(project=project, name="large")
    spec = {
        "criteria": [
            {"id": "correct", "kind": "environment_reward", "weight": 1},
            {"id": "tidy", "kind": "environment_reward", "weight": 1},
        ]
    }
    return RubricVersion.objects.create(rubric=rubric, number=1, spec=spec, sha256="2b" * 32)
