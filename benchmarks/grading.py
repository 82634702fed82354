"""How fast rubrics are graded: criteria of code, the back-test of a draft, and code in the sandbox.

`grading.programmatic_per_s` is criterion gradings per second of processor time on one core, by
`rubrics.grade` on transcripts of the size that small agents leave (a few commands with a screen of
output each). `grading.backtest_500_s` is wall time of the real job from its start to its last row,
on 500 stored rollouts whose every criterion changed, for a rubric of code kinds and for one with a
Python criterion. `grading.python_per_s` is calls of an author's function in the warm sandbox, 8 at
a time. Where the sandbox cannot run its figures are missed.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure
from benchmarks.stack import use_temporary_data
from rubrics.codec import from_json
from rubrics.grade import grade
from rubrics.types import CodeRequest, Step, Transcript

PROGRAMMATIC_BAR = 2_000
BACKTEST_BAR_S = 10.0
PYTHON_BAR = 100
ROLLOUTS = 500
SECONDS = 2.0
"""Of the measurements that repeat."""
REPEATS = 3
"""The best of them counts: what else the machine does only slows a measurement down."""
OUTPUT = "-rw-r--r-- 1 agent agent 1834 list.txt\n" * 24

CRITERIA: list[dict[str, Any]] = [
    {"id": "reward", "kind": "environment_reward"},
    {"id": "right", "kind": "exact"},
    {"id": "number", "kind": "number", "params": {"abs_tol": 0.5}},
    {"id": "said", "kind": "contains", "scope": "step", "params": {"texts": ["list"]}},
    {"id": "close", "kind": "similarity"},
    {
        "id": "shown",
        "kind": "regex",
        "scope": "trajectory",
        "params": {"pattern": r"\b18\d\d list\.txt", "source": "outputs"},
    },
    {"id": "few", "kind": "steps", "scope": "trajectory", "params": {"max": 6, "within": 2}},
    {"id": "quick", "kind": "latency", "scope": "trajectory", "params": {"max": 60, "within": 5}},
    {
        "id": "looked",
        "kind": "tool_called",
        "scope": "trajectory",
        "params": {"command": r"^ls\b", "succeeded": True},
    },
    {
        "id": "careful",
        "kind": "forbidden_command",
        "scope": "trajectory",
        "negative": True,
        "params": {"patterns": [r"\brm\b"]},
    },
]
PYTHON: dict[str, Any] = {
    "id": "code",
    "kind": "python",
    "scope": "trajectory",
    "params": {
        "source": (
            "def few(trace):\n"
            '    n = sum(step["command"] is not None for step in trace["steps"])\n'
            '    return {"value": max(0.0, 1 - max(0, n - 2) / 3), "reason": f"{n} commands"}\n'
        )
    },
}


def run() -> Iterator[Figure]:
    """Four figures."""
    yield Figure("grading.programmatic_per_s", _programmatic(), PROGRAMMATIC_BAR, is_floor=True)
    with use_temporary_data():
        past = _Past()
        yield Figure("grading.backtest_500_s", past.backtest(CRITERIA), BACKTEST_BAR_S)
        yield Figure("grading.python_per_s", _python(), PYTHON_BAR, is_floor=True)
        mixed = [CRITERIA[1], PYTHON]
        yield Figure("grading.backtest_500_python_s", past.backtest(mixed), BACKTEST_BAR_S)


def transcript(n: int) -> Transcript:
    """One to six commands and an answer."""
    steps = [
        Step(i, 2 * i, f"ls -la folder{i}", command=f"ls -la folder{i}", output=OUTPUT)
        for i in range(1, 2 + n % 6)
    ]
    last = len(steps) + 1
    answer = "42" if n % 3 else "about 41"
    steps.append(Step(last, 2 * last, f"answer: {answer}", answer=answer, reward=1.0, done=True))
    return Transcript(
        steps=tuple(steps),
        answer=answer,
        expected="42",
        reward=1.0,
        task="How many lines has list.txt?",
        labels={"family": "count_lines"},
        wall_s=8.0 + n % 7,
        tokens=400,
        cost_usd=0.001,
    )


def _programmatic() -> float:
    spec = from_json({"criteria": CRITERIA})
    transcripts = [transcript(n) for n in range(60)]
    for one in transcripts:
        grade(spec, one)
    n, started = 0, time.process_time()
    for one in itertools.cycle(transcripts):
        grade(spec, one)
        n += len(spec.criteria)
        if time.process_time() - started > SECONDS:
            break
    return n / (time.process_time() - started)


class _Past:
    """500 stored rollouts that a rubric of one criterion has graded."""

    def __init__(self) -> None:
        from benchmarks.past_rollouts import make_tasks, write_run
        from orchestrator.grading.drafts import start_draft
        from orchestrator.projects.models import Membership, Project, Role, User
        from rubrics.models import Rubric
        from rubrics.versions import create_rubric_version

        project = Project.objects.create(name="Bench")
        self.actor = User.objects.create_user(username="bench", password="bench-of-grading")
        Membership.objects.create(project=project, user=self.actor, role=Role.EDITOR)
        self.rubric = Rubric.objects.create(project=project, name="answers")
        version = create_rubric_version(
            rubric=self.rubric, spec={"criteria": [{"id": "old", "kind": "exact"}]}
        )
        write_run(rubric_version=version, version=make_tasks(project, 50), n=ROLLOUTS)
        self.draft = start_draft(actor=self.actor, rubric=self.rubric)

    def backtest(self, criteria: list[dict[str, Any]]) -> float:
        """Wall seconds of the best repeat; the first that is good enough ends them."""
        best = float("nan")
        for _ in range(REPEATS):
            took_s = self._backtest(criteria)
            best = took_s if not best <= took_s else best
            if best <= BACKTEST_BAR_S / 2:
                break
        return best

    def _backtest(self, criteria: list[dict[str, Any]]) -> float:
        """Wall seconds; NaN if not every rollout was graded without an error."""
        from orchestrator.grading.backtest import comparison_of, start_backtest
        from orchestrator.grading.drafts import save_draft
        from orchestrator.jobs.execution import run_attempt

        saved = save_draft(
            actor=self.actor,
            draft=self.draft,
            spec={"criteria": criteria},
            revision=self.draft.revision,
        )
        self.draft = saved.draft
        started = time.monotonic()
        asked = start_backtest(actor=self.actor, draft=self.draft)
        assert asked.job_id is not None
        run_attempt(asked.job_id)
        took_s = time.monotonic() - started
        found = comparison_of(asked)
        is_whole = found.n == ROLLOUTS and not any(c.n_errored_after for c in found.criteria)
        return took_s if is_whole else float("nan")


def _python() -> float:
    """Calls per second in the best repeat; NaN where the sandbox cannot run."""
    from orchestrator.judging.code import code_pool
    from rubrics.errors import CriterionFailed
    from rubrics.kinds.python import function_in, trace_of

    source = PYTHON["params"]["source"]
    request = CodeRequest(source, function_in(source), trace_of(transcript(3)))
    pool = code_pool()

    async def measured() -> float:
        await pool.run(request)
        ends = time.monotonic() + SECONDS
        done = 0

        async def worker() -> None:
            nonlocal done
            while time.monotonic() < ends:
                await pool.run(request)
                done += 1

        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(worker())
        return done / (time.monotonic() - started)

    best = float("nan")
    for _ in range(REPEATS):
        try:
            found = asyncio.run(measured())
        except CriterionFailed:
            return best
        best = found if not best >= found else best
        if best > 2 * PYTHON_BAR:
            break
    return best
