"""Three runs on the same tasks as rows: a baseline, a better harness, trained weights that err."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric, RubricVersion
from tests.web.build import (
    ACTION,
    make_environment,
    make_harness,
    make_rollout,
    make_run,
    observation,
    started,
    tasks_of,
)

TASKS = 24


@dataclass(frozen=True)
class Compared:
    base: Run
    better: Run
    erring: Run

    @property
    def query(self) -> str:
        return f"?runs={self.base.pk},{self.better.pk},{self.erring.pk}"

    def rollouts(self, run: Run) -> list[Rollout]:
        return list(run.rollouts.order_by("pk"))


def make_compared(project: Project, *, tasks: int = TASKS, replicates: int = 2) -> Compared:
    version = make_environment(project, tasks=tasks)
    rubric = _rubric(project)
    seed, other = make_harness(project), make_harness(project)
    base = make_run(project, label="Baseline", environment_version=version, rubric_version=rubric)
    shared = {"environment_version": version, "rubric_version": rubric, "model": base.model}
    better = make_run(project, label="Better harness", sampling={"temperature": 0.7}, **shared)
    erring = make_run(project, label="Trained weights", adapter_name="echo-step-4", **shared)
    for index, task in enumerate(tasks_of(base)):
        for replicate in range(replicates):
            _rollout(base, task, replicate, seed, float(index % 3 == 0), 0.8)
            _rollout(better, task, replicate, other, float(index % 4 != 1), 0.9)
            erred = index % 4 == 2
            _rollout(erring, task, replicate, other, None if erred else float(index % 2), 1.4)
    return Compared(base, better, erring)


def _rubric(project: Project) -> RubricVersion:
    rubric = Rubric.objects.create(project=project, name="files")
    spec = {
        "criteria": [
            {"id": "correct", "name": "The answer is right", "kind": "environment_reward"},
            {"id": "wild", "name": "Touches other files", "kind": "contains", "negative": True},
        ]
    }
    return RubricVersion.objects.create(rubric=rubric, number=1, spec=spec, sha256="ef" * 32)


def _rollout(
    run: Run, task: object, replicate: int, harness: object, score: float | None, latency: float
) -> Rollout:
    errored = {"state": "errored", "cause": "step_timeout", "message": "No answer for 60 s."}
    rollout = make_rollout(
        run,
        task,  # type: ignore[arg-type]
        replicate=replicate,
        harness=harness,
        score=score,
        answer=f"There are {3 if score else 4} lines in the file.",
        latency_s=latency + 0.01 * replicate,
        tokens_in=400,
        tokens_out=60,
        cost_usd=0.002,
        n_steps=2,
        **(errored if score is None else {}),
    )
    if score is not None:
        for key, name, value in (
            ("correct", "The answer is right", score),
            ("wild", "Touches other files", 1.0 - score if replicate else 0.0),
        ):
            VerdictRecord.objects.create(
                rollout=rollout,
                criterion=key,
                name=name,
                state="scored",
                value=value,
                reason="the environment gave it",
            )
    _trace(rollout, is_other=bool(score))
    return rollout


def _trace(rollout: Rollout, *, is_other: bool) -> None:
    """Two steps that all share, then one that a rollout with a score of 1 does differently."""
    steps = [("ls -la", "total 12\nlist1.txt\n"), ("cat list1.txt", "alpha\nbeta\ngamma\n")]
    steps.append(("wc -l list1.txt", "3 list1.txt\n") if is_other else ("wc list1.txt", "4\n"))
    events = [started()]
    for number, (command, output) in enumerate(steps, start=1):
        events.append(
            NewEvent("action", {**ACTION, "step": number, "text": command, "command": command})
        )
        events.append(observation(("env_output", output), step=number))
    append(stream_id=rollout.stream_id, items=events)
