"""What a run leaves behind, written without an environment and a model: rollouts, logs, verdicts.

Logs have the shape that runs write, and verdicts are those of the run's own grading on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion, Task
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.services import NewEvent, append_many
from orchestrator.projects.models import Project
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run, RunState, VerdictRecord
from orchestrator.runs.queries import ended_payload, started_payload
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run
from orchestrator.runs.transcripts import assembled, step_of
from rubrics.codec import from_json
from rubrics.grade import score
from rubrics.models import RubricVersion

OUTPUT = "-rw-r--r-- 1 agent agent 1834 list.txt\n"
Said = Callable[[int], Sequence[Mapping[str, Any]]]
"""Of rollout number n: its actions, {"command"} or {"answer"}, the last one an answer."""


def few_commands(n: int) -> list[Mapping[str, Any]]:
    """One to four commands, then an answer that is right for two of three."""
    commands = [{"command": f"ls -la folder{n} | head -{i}"} for i in range(1 + n % 4)]
    return [*commands, {"answer": "42" if n % 3 else "41"}]


def make_tasks(project: Project, n: int = 5, *, split: str = "train") -> EnvironmentVersion:
    slug = f"files-{Environment.objects.count()}"
    environment = Environment.objects.create(
        project=project, slug=slug, name="Terminal files", kind=EnvironmentKind.TERMINAL
    )
    return create_version(
        environment=environment,
        source={},
        tasks=[
            NewTask(
                key=f"{split}-{i:04d}",
                split=split,
                family="count_lines",
                prompt=f"How many lines has list{i}.txt? Answer with a number.",
                reset={"task": f"{split}-{i:04d}"},
                spec={"answer": "42", "files": {}},
            )
            for i in range(n)
        ],
    )


def write_run(
    *,
    rubric_version: RubricVersion,
    version: EnvironmentVersion,
    n: int,
    said: Said = few_commands,
    errored: frozenset[int] = frozenset(),
    label: str = "a past run",
) -> Run:
    """`n` rollouts over the tasks of `version`, all of them ended.

    `errored`: numbers of those whose environment went away after the first action.
    """
    project = version.environment.project
    harness = store_harness(project_id=project.pk, harness=Harness(instructions="Act.\n"))
    endpoint, _ = ModelEndpoint.objects.get_or_create(
        project=project,
        name="a model",
        defaults={"kind": EndpointKind.LOCAL, "base_url": "http://127.0.0.1:9", "model": "m"},
    )
    tasks = list(Task.objects.filter(version=version).order_by("key"))
    run = create_run(
        spec=RunSpec(
            project=project,
            purpose=Purpose.EVALUATE,
            label=label,
            environment_version=version,
            rubric_version=rubric_version,
            model=endpoint,
            seed=1,
        ),
        plan=[PlannedRollout(harness.pk, tasks[i % len(tasks)], i // len(tasks)) for i in range(n)],
    )
    spec = from_json(rubric_version.spec)
    rollouts = list(Rollout.objects.filter(run=run).select_related("task", "harness", "run__model"))
    batches: dict[int, list[NewEvent]] = {}
    verdicts: list[VerdictRecord] = []
    for number, rollout in enumerate(rollouts):
        batches[rollout.stream_id] = events = [
            NewEvent("rollout.started", started_payload(rollout, 1, []))
        ]
        steps = []
        actions = said(number)[:1] if number in errored else said(number)
        for index, action in enumerate(actions, start=1):
            sent = _action(index, action)
            is_last = index == len(actions) and number not in errored
            reward = float(action.get("answer") == "42") if is_last else None
            seen = _observation(index, reward, is_last)
            steps.append(step_of(sent, seen, seq=len(events) + 2))
            events += [NewEvent("action", sent), NewEvent("observation", seen)]
        rollout.n_steps, rollout.attempt = len(steps), 1
        rollout.latency_s, rollout.tokens_in, rollout.tokens_out = 1.5 * len(steps), 300, 40
        rollout.started_at = rollout.ended_at = timezone.now()
        if number in errored:
            rollout.state, rollout.cause = RolloutState.ERRORED, "server_lost"
            rollout.message = "The environment server went away during step 2. No score."
        else:
            rollout.answer = str(actions[-1].get("answer") or "")
            rollout.reward = steps[-1].reward
            transcript = assembled(
                steps=steps,
                reward=rollout.reward,
                task=rollout.task.prompt,
                family=rollout.task.family,
                wall_s=rollout.latency_s,
                tokens=340,
                expected="42",
                cost_usd=0.0,
            )
            graded, found = score(spec, transcript)
            rollout.state, rollout.score = RolloutState(graded.state), graded.value
            if rollout.score is None:
                rollout.cause, rollout.message = "grading", graded.reason
            for verdict in found:
                row = {
                    "criterion": verdict.criterion,
                    "name": verdict.criterion,
                    "state": verdict.state.value,
                    "value": verdict.value,
                    "reason": verdict.reason,
                    "cites": list(verdict.cites),
                }
                verdicts.append(VerdictRecord(rollout=rollout, **row))
                events.append(NewEvent("verdict", row))
        events.append(NewEvent("rollout.ended", ended_payload(rollout)))
    append_many(batches=batches)
    fields = (
        "state score reward cause message answer n_steps attempt latency_s tokens_in tokens_out"
        " started_at ended_at"
    )
    Rollout.objects.bulk_update(rollouts, fields.split(), batch_size=200)
    VerdictRecord.objects.bulk_create(verdicts, batch_size=500)
    Run.objects.filter(pk=run.pk).update(
        state=RunState.COMPLETED, started_at=timezone.now(), ended_at=timezone.now()
    )
    run.refresh_from_db()
    return run


def _action(step: int, action: Mapping[str, Any]) -> dict[str, Any]:
    command, answer = action.get("command"), action.get("answer")
    return {
        "step": step,
        "text": command or f"answer: {answer}",
        "form": "command" if command else "answer",
        "command": command,
        "answer": answer,
        "tokens": 12,
        "logprob": -3.5,
        "latency_s": 0.4,
        "finish_reason": "stop",
    }


def _observation(step: int, reward: float | None, done: bool) -> dict[str, Any]:
    return {
        "step": step,
        "segments": [{"kind": "env_output", "text": OUTPUT * 12}],
        "exit_status": 0,
        "truncated": False,
        "reward": reward,
        "done": done,
        "latency_s": 0.02,
        "tool_error": "",
        "size_bytes": None,
        "sha256": "",
    }
