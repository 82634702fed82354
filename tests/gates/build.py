"""Gates whose rollouts are scored by a rule in this process (see `tests.searches.playing`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.events.models import Event
from orchestrator.gates.models import Gate
from orchestrator.gates.policy import Policy
from orchestrator.gates.services import GateForm, start_gate
from orchestrator.projects.models import Project, User
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.runs.drive import make_endpoint, make_harness, make_rubric
from tests.searches.playing import make_version, play

BEFORE, AFTER = "Act in JSON.\n", "Act in JSON. Think first.\n"
Rule = Callable[[Harness, Rollout], float | None]


def worth(before: float, after: float) -> Rule:
    """What a rollout scores: passes with these probabilities, the same every time it is asked."""

    def rule(harness: Harness, rollout: Rollout) -> float | None:
        chance = after if harness.instructions == AFTER else before
        draw = random.Random(f"{harness.instructions}/{rollout.task.key}/{rollout.replicate}")
        return float(draw.random() < chance)

    return rule


def sides(project: Project) -> tuple[HarnessVersion, HarnessVersion]:
    """Baseline and candidate."""
    return (
        make_harness(project, instructions=BEFORE),
        make_harness(project, instructions=AFTER),
    )


def make_form(
    project: Project, *, version: EnvironmentVersion | None = None, tasks: int = 12, **fields: Any
) -> GateForm:
    before, after = sides(project)
    model = fields.pop("model", None) or make_endpoint(project, "http://127.0.0.1:9")
    policy = {"rollouts": 10 * 2 * tasks, **fields.pop("policy", {})}
    return GateForm(
        **{
            "name": "Think first",
            "environment_version": version or make_version(project, {"select": tasks}),
            "rubric_version": make_rubric(project),
            "candidate": after,
            "candidate_model": model,
            "baseline": before,
            "baseline_model": model,
            "policy": Policy.from_json(policy),
            **fields,
        }
    )


def make_gate(people: People, **fields: Any) -> Gate:
    return start(people.project, people.editor, **fields)


def start(project: Project, actor: User, **fields: Any) -> Gate:
    return start_gate(actor=actor, project=project, form=make_form(project, **fields))


def played(people: People, rule: Rule, **fields: Any) -> Gate:
    """A gate at its end."""
    gate = make_gate(people, **fields)
    play(rule)
    gate.refresh_from_db()
    return gate


def told(gate: Gate, kind: str) -> list[dict[str, Any]]:
    events = Event.objects.filter(stream_id=gate.stream_id, kind=kind).order_by("seq")
    return [event.payload for event in events]
