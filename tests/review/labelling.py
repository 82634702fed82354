"""Graded rollouts with labels as rows: what calibration reads. No model takes part."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orchestrator.environments.models import EnvironmentVersion, Task
from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import Project, User
from orchestrator.review.models import Annotation
from orchestrator.review.splits import is_held_out
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric, RubricVersion
from tests.web.build import ACTION, make_environment, make_rollout, make_run, observation, started

QUESTION = "Does the answer name the file that it was asked for?"


def judge_criterion(**changes: Any) -> dict[str, Any]:
    return {
        "id": "names-file",
        "name": "Names the file",
        "kind": "judge",
        "scope": "trajectory",
        "params": {"question": QUESTION},
        **changes,
    }


def make_rubric(project: Project, *criteria: dict[str, Any], name: str = "answers") -> Rubric:
    rubric = Rubric.objects.create(project=project, name=name)
    add_version(rubric, *(criteria or (judge_criterion(),)))
    return rubric


def add_version(rubric: Rubric, *criteria: dict[str, Any]) -> RubricVersion:
    number = rubric.versions.count() + 1
    return RubricVersion.objects.create(
        rubric=rubric, number=number, spec={"criteria": list(criteria)}, sha256=f"{number:064x}"
    )


def detail(*models: str, values: Sequence[float] = ()) -> dict[str, Any]:
    """Of a judged verdict; without models that of code."""
    calls = [
        {"call": None, "model": model, "state": "scored", "value": value}
        for model, value in zip(models, values or [1.0] * len(models), strict=True)
    ]
    return {"calls": calls} if calls else {}


class Labelled:
    """A run under a version, filled rollout by rollout."""

    def __init__(
        self,
        version: RubricVersion,
        *,
        environment: EnvironmentVersion | None = None,
        tasks: int = 60,
        **run: Any,
    ) -> None:
        project = version.rubric.project
        self.version = version
        self.run: Run = make_run(
            project,
            rubric_version=version,
            environment_version=environment or make_environment(project, tasks=tasks),
            **run,
        )
        self._tasks = list(
            Task.objects.filter(version=self.run.environment_version, split="train").order_by("pk")
        )
        self._n = 0

    def rollout(
        self,
        value: float | None = 1.0,
        *,
        state: str = "scored",
        criterion: str = "names-file",
        model: str = "j1",
        verdict: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Rollout:
        """One more, with a verdict of the judge; `value` None with `state` errored and so on."""
        task = self._tasks[self._n % len(self._tasks)]
        replicate = self._n // len(self._tasks)
        self._n += 1
        rollout = make_rollout(self.run, task, replicate=replicate, **fields)
        VerdictRecord.objects.create(
            rollout=rollout,
            criterion=criterion,
            name=criterion,
            state=state,
            value=value if state == "scored" else None,
            reason="[E2] says so",
            cites=[2],
            detail=detail(model) if verdict is None else verdict,
        )
        return rollout

    def label(
        self,
        rollout: Rollout,
        user: User,
        value: float | None = 1.0,
        *,
        criterion: str = "names-file",
        at: datetime | None = None,
        **fields: Any,
    ) -> Annotation:
        """`value` None: the person said that it does not apply."""
        mark = Annotation.objects.create(
            rollout=rollout,
            rubric=self.version.rubric,
            criterion=criterion,
            user=user,
            **{
                "rubric_version": self.version,
                "state": "not_applicable" if value is None else "scored",
                "value": value,
                "is_held_out": is_held_out(rollout.pk),
                **fields,
            },
        )
        if at is not None:
            Annotation.objects.filter(pk=mark.pk).update(updated_at=at)
        return mark

    def many(self, user: User, *, tp: int = 0, fn: int = 0, fp: int = 0, tn: int = 0) -> None:
        """Labelled rollouts by what the person and the judge said."""
        counted = {(1.0, 1.0): tp, (1.0, 0.0): fn, (0.0, 1.0): fp, (0.0, 0.0): tn}
        for (person, judge), n in counted.items():
            for _ in range(n):
                self.label(self.rollout(judge), user, person)


def answered(rollout: Rollout, text: str) -> Rollout:
    """Gives it a trace that ends with this answer."""
    action = {**ACTION, "text": text, "form": "answer", "command": None, "answer": text}
    append(
        stream_id=rollout.stream_id,
        items=[started(), NewEvent("action", action), observation(("env_output", "ok"))],
    )
    return rollout
