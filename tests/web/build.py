"""Runs, rollouts and climbs as rows, for pages to show. No worker and no model takes part."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from django.utils import timezone

from optimizer.models import Blob, Comparison, Edit, HarnessVersion, Search
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.climbs.models import Climb, Rung, RungKind
from orchestrator.environments.models import (
    Environment,
    EnvironmentKind,
    EnvironmentVersion,
    Task,
)
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, Run, TokenRow, VerdictRecord
from rubrics.models import Rubric, RubricVersion
from training.manifest import Manifest, ModelPart
from training.models import TrainingJob

_numbers = itertools.count(1)

SECRET = "the-answer-is-4711"
FILE_TEXT = "alpha beta gamma\n"


def make_environment(project: Project, *, tasks: int = 3) -> EnvironmentVersion:
    """`tasks` tasks per split; each spec holds `SECRET` and a file."""
    environment = Environment.objects.create(
        project=project,
        slug=f"files-{next(_numbers)}",
        name="Terminal files",
        kind=EnvironmentKind.TERMINAL,
    )
    version = EnvironmentVersion.objects.create(environment=environment, number=1, sha256="ab" * 32)
    Task.objects.bulk_create(
        Task(
            version=version,
            key=f"{split}-{index:04d}",
            split=split,
            family="count_lines" if index % 2 else "first_line",
            prompt=f"How many lines has list{index}.txt?",
            spec={"files": {f"list{index}.txt": FILE_TEXT}, "answer": SECRET},
            reference=[{"role": "assistant", "content": SECRET}] if split == "train" else None,
        )
        for split in ("train", "select", "test")
        for index in range(1, tasks + 1)
    )
    return version


def make_rubric(project: Project) -> RubricVersion:
    rubric = Rubric.objects.create(project=project, name=f"answer-{next(_numbers)}")
    spec = {
        "criteria": [
            {
                "id": "correct",
                "name": "The answer is right",
                "kind": "environment_reward",
                "weight": 9,
            }
        ]
    }
    return RubricVersion.objects.create(rubric=rubric, number=1, spec=spec, sha256="cd" * 32)


def make_harness(project: Project, **texts: str) -> HarnessVersion:
    components = {"instructions.md": f"Act. {next(_numbers)}", **texts}
    for key, text in components.items():
        Blob.objects.get_or_create(
            sha256=f"{abs(hash((key, text))):064x}"[:64],
            defaults={"text": text, "size_bytes": len(text)},
        )
    return HarnessVersion.objects.create(
        project=project,
        sha256=f"{next(_numbers):064x}",
        components={key: f"{abs(hash((key, text))):064x}"[:64] for key, text in components.items()},
    )


def make_run(project: Project, **overrides: Any) -> Run:
    fields: dict[str, Any] = {
        "project": project,
        "purpose": "evaluate",
        "label": "Harness, sealed test",
        "state": "completed",
        "started_at": timezone.now() - timedelta(seconds=90),
        "ended_at": timezone.now(),
        **overrides,
    }
    if "environment_version" not in fields:
        fields["environment_version"] = make_environment(project)
    if "rubric_version" not in fields:
        fields["rubric_version"] = make_rubric(project)
    if "model" not in fields:
        fields["model"] = ModelEndpoint.objects.create(
            project=project, name=f"tiny-{next(_numbers)}", kind=EndpointKind.LOCAL, model="tiny"
        )
    return Run.objects.create(stream=create_stream(project=project, kind="run"), **fields)


def make_rollout(run: Run, task: Task, **overrides: Any) -> Rollout:
    """Scored 1.0 unless told otherwise."""
    fields: dict[str, Any] = {
        "state": "scored",
        "score": 1.0,
        "answer": "3",
        "attempt": 1,
        **overrides,
    }
    if fields["state"] != "scored":
        fields.setdefault("score", None)
        fields["score"] = None
    if "harness" not in fields:
        fields["harness"] = HarnessVersion.objects.filter(
            project=run.project
        ).first() or make_harness(run.project)
    return Rollout.objects.create(
        run=run,
        stream=create_stream(project=run.project, kind="rollout"),
        task=task,
        seed=next(_numbers),
        **fields,
    )


def tasks_of(run: Run, split: str = "test") -> list[Task]:
    return list(Task.objects.filter(version=run.environment_version, split=split))


ACTION: dict[str, Any] = {
    "step": 1,
    "text": "wc -l list1.txt",
    "form": "command",
    "command": "wc -l list1.txt",
    "answer": None,
    "accepted": True,
    "reason": "",
    "tokens": 6,
    "logprob": -0.7,
    "latency_s": 0.4,
    "finish_reason": "stop",
}


def started(attempt: int = 1) -> NewEvent:
    return NewEvent(
        "rollout.started",
        {
            "attempt": attempt,
            "task": "test-0001",
            "family": "count_lines",
            "prompt": "How many lines has list1.txt?",
            "messages": [{"role": "system", "content": "One line only."}],
        },
    )


def observation(*segments: tuple[str, str], step: int = 1) -> NewEvent:
    return NewEvent(
        "observation",
        {
            "step": step,
            "segments": [{"kind": kind, "text": text} for kind, text in segments],
            "exit_status": 0,
            "truncated": False,
            "reward": None,
            "done": False,
            "latency_s": 0.1,
        },
    )


def make_trace(rollout: Rollout) -> None:
    """One command, its output with a scaffold part, one verdict, the end, and a token row."""
    append(
        stream_id=rollout.stream_id,
        items=[
            started(),
            NewEvent("action", ACTION),
            observation(("env_output", "3 list1.txt\n"), ("scaffold", "[exit status 0]")),
            NewEvent(
                "verdict",
                {
                    "criterion": "correct",
                    "name": "The answer is right",
                    "state": "scored",
                    "value": 1.0,
                    "reason": "the environment gave 1.00",
                    "cites": [3],
                },
            ),
            NewEvent("rollout.ended", {"state": "scored", "score": 1.0, "steps": 1}),
        ],
    )
    VerdictRecord.objects.create(
        rollout=rollout,
        criterion="correct",
        name="The answer is right",
        state="scored",
        value=1.0,
        reason="the environment gave 1.00",
        cites=[3],
    )
    TokenRow.objects.create(
        rollout=rollout,
        index=0,
        ids=list(range(20)),
        kinds=[["context", 10], ["action", 4], ["env_output", 6]],
        logprobs=[-0.05, -0.4, -1.5, -5.0],
    )


def make_climb(project: Project, **overrides: Any) -> Climb:
    """Two rungs done and one under way: 0.02, 0.75 certified, weights running."""
    run = make_run(project)
    seed, better = (
        make_harness(project),
        make_harness(project, **{"rules.md": "Act, do not explain."}),
    )
    search = Search.objects.create(
        project=project,
        stream=create_stream(project=project, kind="search"),
        state="completed",
        environment_version=run.environment_version,
        rubric_version=run.rubric_version,
        model=run.model,
        seed_harness=seed,
        seed=7,
    )
    Edit.objects.create(
        search=search,
        position=0,
        sha256="e1",
        operator="demonstrations.reference",
        component="demonstrations.jsonl",
        data={"op": "append", "content": "x"},
        effect_mean=0.71,
        effect_sd=0.06,
        probability_positive=1.0,
        rollouts_with=30,
        rollouts_without=30,
        in_bundle=True,
    )
    fields: dict[str, Any] = {
        "project": project,
        "name": "Terminal files",
        "state": "running",
        "phase": "train",
        "environment_version": run.environment_version,
        "rubric_version": run.rubric_version,
        "model": run.model,
        "seed_harness": seed,
        "search": search,
        "started_at": timezone.now(),
        **overrides,
    }
    climb = Climb.objects.create(stream=create_stream(project=project, kind="climb"), **fields)
    done = {"state": "done", "progress": 1.0, "n_scored": 60, "started_at": timezone.now()}
    Rung.objects.create(
        climb=climb,
        index=0,
        kind=RungKind.BASELINE,
        verdict="reference",
        harness=seed,
        score=0.02,
        score_low=0.0,
        score_high=0.09,
        certificate={"verdict": "reference", "split": "test"},
        **done,
    )
    Rung.objects.create(
        climb=climb,
        index=1,
        kind=RungKind.HARNESS,
        verdict="better",
        harness=better,
        score=0.75,
        score_low=0.63,
        score_high=0.84,
        n_errored=2,
        test_run=run,
        comparison=Comparison.objects.create(
            project=project,
            split="test",
            method="paired_bootstrap",
            verdict="better",
            pairs=58,
            coverage=0.97,
            difference=0.73,
            low=0.61,
            high=0.84,
            alpha=0.05,
        ),
        **done,
    )
    Rung.objects.create(
        climb=climb,
        index=2,
        kind=RungKind.ECHO,
        state="running",
        progress=0.4,
        doing="Train step 3: 8 of 32 rollouts",
        started_at=timezone.now(),
    )
    append(
        stream_id=climb.stream_id,
        items=[
            NewEvent("decision", {"text": "Harness certified."}),
            NewEvent(
                "train.step",
                {"step": 1, "total": 4, "reward_mean": 0.4, "world_ce_selected_per_token": 2.4},
            ),
            NewEvent(
                "train.step",
                {"step": 2, "total": 4, "reward_mean": 0.5, "world_ce_selected_per_token": 1.9},
            ),
        ],
    )
    return climb


def make_training_job(project: Project, **overrides: Any) -> TrainingJob:
    fields: dict[str, Any] = {
        "folder": "training/1",
        "manifest": Manifest(ModelPart(folder="models/tiny", name="tiny")).to_json(),
        "manifest_sha256": "5e" * 32,
        "state": "running",
        "step": 2,
        "total_steps": 4,
        **overrides,
    }
    return TrainingJob.objects.create(
        project=project, stream=create_stream(project=project, kind="training_job"), **fields
    )
