"""What is read of gates: pairs, what was spent, lists for pages and clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet, Sum

from optimizer.models import HarnessVersion
from optimizer.statistics.paired import Pair
from orchestrator.gates.deciding import Required
from orchestrator.gates.models import Gate, Side
from orchestrator.gates.policy import REWARD, Plan, Policy, plan_for
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, VerdictRecord
from rubrics.aggregate import goodness, reaches
from rubrics.codec import from_json
from rubrics.types import Criterion

Key = tuple[str, str, int]
"""Side, task and replicate."""


@dataclass(frozen=True)
class Seen:
    pairs: list[Pair]
    required: list[Required]


@dataclass(frozen=True)
class Spent:
    rollouts: int
    """That have ended."""
    usd: float
    tokens: int
    running: int
    """Rollouts that are asked for and have not ended."""


def full(gate_id: int) -> Gate:
    """With all that its course needs."""
    return Gate.objects.select_related(
        *("project", "environment_version", "rubric_version"),
        *("candidate", "baseline", "candidate_model", "baseline_model"),
    ).get(pk=gate_id)


def policy_of(gate: Gate) -> Policy:
    return Policy.from_json(gate.policy)


def plan_of(gate: Gate) -> Plan:
    return plan_for(policy_of(gate), len(gate.tasks))


def rollouts_of(gate: Gate) -> QuerySet[Rollout]:
    return Rollout.objects.filter(run__gate_run__gate=gate)


def seen_at(gate: Gate, look: int) -> Seen:
    """All pairs that were asked for up to this look, also those without scores."""
    policy = policy_of(gate)
    criteria = {c.id: c for c in from_json(gate.rubric_version.spec).criteria}
    rollouts = {_key(gate, row): row for row in _rows(gate, look)}
    wanted = {*policy.required, *((policy.criterion,) if policy.criterion else ())}
    verdicts = _verdicts(gate, look, wanted)
    values: dict[Key, float] = {}
    rules: dict[str, Counter[bool]] = {name: Counter() for name in policy.required}
    for key, row in rollouts.items():
        told = verdicts.get(row.pk, {})
        value = _value(policy, row, told, criteria)
        if value is not None:
            values[key] = value
        if key[0] == Side.CANDIDATE:
            for name, tally in rules.items():
                if (judged := told.get(name)) is not None:
                    tally[reaches(criteria[name], judged)] += 1
    repeats = plan_of(gate).replicates[look - 1]
    pairs = [
        Pair(
            task,
            values.get((Side.BASELINE, task, replicate)),
            values.get((Side.CANDIDATE, task, replicate)),
        )
        for replicate in range(repeats)
        for task in gate.tasks
    ]
    required = [Required(name, tally[False], tally.total()) for name, tally in rules.items()]
    return Seen(pairs, required)


def _rows(gate: Gate, look: int) -> Iterable[Rollout]:
    return (
        rollouts_of(gate)
        .filter(run__gate_run__look__lte=look)
        .select_related("task", "run__gate_run")
        .only(
            *("state", "score", "reward", "replicate", "harness_id", "task__key"),
            *("run__gate_run__side",),
        )
        .order_by("id")
    )


def _key(gate: Gate, row: Rollout) -> Key:
    side = row.run.gate_run.side
    if side == Side.BOTH:
        side = Side.CANDIDATE if row.harness_id == gate.candidate_id else Side.BASELINE
    return (side, row.task.key, row.replicate)


def _verdicts(gate: Gate, look: int, names: set[str]) -> Mapping[int, Mapping[str, float]]:
    if not names:
        return {}
    found: dict[int, dict[str, float]] = {}
    records = VerdictRecord.objects.filter(
        rollout__run__gate_run__gate=gate,
        rollout__run__gate_run__look__lte=look,
        rollout__is_replaced=False,
        criterion__in=names,
        value__isnull=False,
    ).values_list("rollout_id", "criterion", "value")
    for rollout, criterion, value in records:
        if value is not None:
            found.setdefault(rollout, {})[criterion] = value
    return found


def _value(
    policy: Policy,
    row: Rollout,
    told: Mapping[str, float],
    criteria: Mapping[str, Criterion],
) -> float | None:
    if policy.criterion is not None:
        value = told.get(policy.criterion)
        return None if value is None else goodness(criteria[policy.criterion], value)
    if row.state != RolloutState.SCORED:
        return None
    return row.reward if policy.metric == REWARD else row.score


def spent_by(gate: Gate) -> Spent:
    totals = rollouts_of(gate).aggregate(
        all=Count("id"),
        open=Count("id", filter=Q(state__in=OPEN_ROLLOUT_STATES)),
        usd=Sum("cost_usd"),
        given=Sum("tokens_in"),
        taken=Sum("tokens_out"),
    )
    return Spent(
        rollouts=totals["all"] - totals["open"],
        usd=totals["usd"] or 0.0,
        tokens=(totals["given"] or 0) + (totals["taken"] or 0),
        running=totals["open"],
    )


def harnesses_named(project_id: int, ref: str) -> list[HarnessVersion]:
    """By an id, else by the first 8 characters of a sha256 or more; two where it is not clear."""
    versions = HarnessVersion.objects.filter(project_id=project_id)
    if ref.isdecimal() and ref.isascii() and len(ref) < 16:
        by_id = versions.filter(pk=int(ref)).first()
        if by_id is not None:
            return [by_id]
    begin = ref.removeprefix("h_").lower()
    return list(versions.filter(sha256__startswith=begin)[:2]) if len(begin) >= 8 else []


def run_ids_of(gate: Gate) -> list[int]:
    """All of its runs, in the order they were begun."""
    return list(gate.gate_runs.values_list("run_id", flat=True))


def gates_in(project_id: int) -> QuerySet[Gate]:
    """Newest first."""
    return (
        Gate.objects.filter(project_id=project_id)
        .select_related(
            *("environment_version__environment", "rubric_version__rubric", "created_by"),
            *("candidate", "baseline", "candidate_model", "baseline_model"),
        )
        .order_by("-id")
    )


def list_gates(project_id: int, *, before_id: int | None = None, limit: int = 50) -> list[Gate]:
    query = gates_in(project_id)
    if before_id is not None:
        query = query.filter(pk__lt=before_id)
    return list(query[:limit])
