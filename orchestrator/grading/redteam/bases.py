"""The rollouts that attacks are made of: some that went well and some that did not.

Those that the rubric itself has graded come first, then others of the project, then golden cases. A
rubric with none of them is attacked on a small rollout made up for it. Sealed tasks take no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.environments.models import Split
from orchestrator.grading.models import GoldenCase
from orchestrator.runs.models import Rollout, RolloutState
from orchestrator.runs.transcripts import transcripts_of, with_trace
from rubrics.models import Rubric
from rubrics.transcript_codec import from_json, to_json
from rubrics.types import Step, Transcript

LOOKED_AT = 200
"""Newest rollouts among which the best and the worst are looked for."""


@dataclass(frozen=True)
class Base:
    label: str
    transcript: Transcript
    rollout: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "rollout": self.rollout,
            "transcript": to_json(self.transcript),
        }

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Base:
        return cls(data["label"], from_json(data["transcript"]), data["rollout"])


def choose(rubric: Rubric, n: int) -> list[Base]:
    """At most `n`, and at least two."""
    return _from_rollouts(rubric, n) or _from_golden_cases(rubric, n) or made_up()


def _from_rollouts(rubric: Rubric, n: int) -> list[Base]:
    found = (
        Rollout.objects.filter(run__project_id=rubric.project_id, state=RolloutState.SCORED)
        .exclude(task__split=Split.TEST)
        .order_by("-id")
    )
    found = with_trace(found)
    own = list(found.filter(run__rubric_version__rubric=rubric).values_list("pk", "score", "task"))
    rows = own[:LOOKED_AT] or list(found.values_list("pk", "score", "task")[:LOOKED_AT])
    if not rows:
        return []
    by_score = sorted(rows, key=lambda row: (-(row[1] or 0.0), -row[0]))
    best = _of_other_tasks(by_score, (n + 1) // 2)
    worst = [pk for pk in _of_other_tasks(reversed(by_score), n // 2) if pk not in best]
    rollouts = list(Rollout.objects.filter(pk__in=[*best, *worst]).select_related("task"))
    transcripts = transcripts_of(rollouts)
    place = {pk: position for position, pk in enumerate([*best, *worst])}
    return [
        Base(f"rollout {r.pk}, task {r.task.key}", transcripts[r.pk], r.pk)
        for r in sorted(rollouts, key=lambda r: place[r.pk])
    ]


def _of_other_tasks(rows: Iterable[tuple[int, float | None, int]], n: int) -> list[int]:
    """The first of each task: attempts at one task are much alike."""
    chosen: dict[int, int] = {}
    for pk, _, task in rows:
        if len(chosen) < n and task not in chosen:
            chosen[task] = pk
    return list(chosen.values())


def _from_golden_cases(rubric: Rubric, n: int) -> list[Base]:
    cases = GoldenCase.objects.filter(rubric=rubric, criterion="").order_by("id")[: 4 * n]
    by_expectation = sorted(cases, key=lambda case: (case.expect == "fail", case.pk))
    passing = [case for case in by_expectation if case.expect == "pass"][: (n + 1) // 2]
    failing = [case for case in by_expectation if case.expect == "fail"][: n - len(passing)]
    return [
        Base(f"golden case “{case.name}”", from_json(case.transcript), case.rollout_id)
        for case in (*passing, *failing)
    ]


def made_up() -> list[Base]:
    """One rollout that found the answer and one that did not."""
    task = "How many lines does notes.txt have? Give the number."

    def rollout(answer: str, output: str, reward: float) -> Transcript:
        steps = (
            Step(0, 2, "cat notes.txt", command="cat notes.txt", output="alpha\nbeta\n"),
            Step(1, 4, "wc -l notes.txt", command="wc -l notes.txt", output=output),
            Step(2, 6, f"answer: {answer}", answer=answer, reward=reward, done=True),
        )
        return Transcript(
            steps=steps,
            answer=answer,
            expected="42",
            reward=reward,
            task=task,
            wall_s=4.0,
            tokens=60,
            cost_usd=0.0,
        )

    return [
        Base("a made-up rollout that is right", rollout("42", "42 notes.txt", 1.0)),
        Base("a made-up rollout that is wrong", rollout("17", "17 other.txt", 0.0)),
    ]
