"""The cheapest model that is not inferior, under the harness that was found.

Models are edits of `harness.yaml`, so they are searched together with the rest; what helps one may
harm another. Here the winner is run with each of them on train tasks, the worse half by utility
(score − λ·cost) is dropped until few are left, and those that cost less than the reference are
tested against it on select tasks, cheapest first: H0 "its score is lower by δ or more", by the
betting test on d + δ. The first that rejects it is shipped.

The margin δ is the user's and decides the price: a model that ties on every pair needs 302 pairs at
.02 and 62 at .10 (`statistics.planning.ties_until_non_inferior`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from optimizer.certification import Certificate, Certifier, CertifyPlan
from optimizer.edits import Edit, are_exclusive
from optimizer.engines.contract import Candidate, Doing, Phase, Request, Row, Server
from optimizer.errors import SearchInvalid
from optimizer.seeds import derive
from optimizer.statistics import Verdict
from optimizer.tasks import TaskRef, passes

SURVIVORS = 3
REPLICATES = 2_000_000
"""Replicates start here: no engine asks for them."""


@dataclass(frozen=True)
class ModelPlan:
    """Raises SearchInvalid."""

    models: tuple[Edit, ...]
    """Each sets the model; the reference is the winner as it is."""
    train: tuple[TaskRef, ...]
    rollouts: int
    """Of the halving."""
    certify: CertifyPlan
    """Its margin is δ, its pairs those of all tests together."""
    cost_weight: float = 0.0
    """λ: score points (0 to 1) that a dollar per rollout is worth."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.certify.margin <= 1.0:
            raise SearchInvalid(f"margin: accepts above 0 to 1, got {self.certify.margin}")
        if self.rollouts < len(self.models) + 1:
            raise SearchInvalid(
                f"model rollouts: {self.rollouts} are too few for {len(self.models)} models"
            )


@dataclass(frozen=True)
class ModelArm:
    candidate: Candidate
    model: str
    """As the edit sets it; empty for the reference."""
    n: int
    score: float | None
    usd: float
    """Mean of a rollout."""
    latency_s: float | None
    usd_per_success: float | None
    """Mean cost over mean score; None without a success."""


@dataclass(frozen=True)
class ModelChoice:
    chosen: Candidate
    arms: tuple[ModelArm, ...]
    """The reference first."""
    tests: tuple[Certificate, ...]
    reason: str


def with_model(candidate: Candidate, edit: Edit) -> Candidate:
    kept = tuple(other for other in candidate.edits if not are_exclusive(other, edit))
    return Candidate((*kept, edit))


def choose(
    plan: ModelPlan,
    winner: Candidate,
    server: Server,
    replicates: Counter[tuple[str, str]] | None = None,
) -> ModelChoice:
    """`replicates` are those that certificates of the same search have used on select tasks.

    Raises what the server raises.
    """
    swapped = {with_model(winner, edit).key: edit.content for edit in plan.models}
    candidates = [winner, *(with_model(winner, edit) for edit in plan.models)]
    candidates = list({c.key: c for c in candidates}.values())
    rows = _halve(plan, candidates, server)
    arms = [_arm(c, swapped.get(c.key, ""), rows) for c in candidates]
    reference, others = arms[0], arms[1:]
    last = max((arm.n for arm in others), default=0)
    cheaper = sorted(
        (a for a in others if a.n == last and a.usd < reference.usd), key=lambda a: a.usd
    )
    used = Counter(replicates or {})
    certifier = Certifier(plan.certify, server, used, phase=Phase.MODELS)
    tests: list[Certificate] = []
    for arm in cheaper[: plan.certify.max_certificates]:
        if certifier.left < 1:
            break
        tests.append(certifier.certify(arm.candidate, base=winner))
        if tests[-1].test.verdict is Verdict.IMPROVED and not tests[-1].breached:
            reason = (
                f"{arm.model} is not worse by {100 * plan.certify.margin:.0f} points or more, "
                f"at {_share(arm.usd, reference.usd)} of the cost"
            )
            return ModelChoice(arm.candidate, tuple(arms), tuple(tests), reason)
    reason = "no cheaper model was shown to be not inferior" if cheaper else "no model costs less"
    return ModelChoice(winner, tuple(arms), tuple(tests), reason)


def pareto(points: Sequence[tuple[float, ...]]) -> list[bool]:
    """Which points no other one dominates. The first coordinate counts up (score), the rest down
    (cost, latency). Equal points stand together.
    """

    def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        no_worse = a[0] >= b[0] and all(x <= y for x, y in zip(a[1:], b[1:], strict=True))
        return no_worse and a != b

    return [not any(dominates(other, point) for other in points) for point in points]


def _halve(plan: ModelPlan, candidates: Sequence[Candidate], server: Server) -> list[Row]:
    """The reference runs in every round, as what the others are compared with."""
    order = passes(plan.train, plan.seed, "models")
    reference, left = candidates[0], list(candidates[1:])
    rows: list[Row] = []
    replicates: Counter[tuple[str, str]] = Counter()
    rounds = 1 + max(0, math.ceil(math.log2(max(len(left), 1) / SURVIVORS)))
    for number in range(rounds):
        n = (plan.rollouts - len(rows)) // (rounds - number) // (len(left) + 1)
        if n < 1:
            break
        requests = []
        for task in islice(order, n):
            for candidate in (reference, *left):
                at = (candidate.key, task.key)
                replicate = REPLICATES + replicates[at]
                replicates[at] += 1
                seed = derive(plan.seed, "models", task.key, replicate)
                requests.append(Request(Phase.MODELS, candidate, task.key, replicate, seed))
        text = f"{len(left)} models on {n} tasks"
        doing = Doing(Phase.MODELS, len(rows), plan.rollouts, text)
        rows += [replace(row, phase=Phase.MODELS) for row in server.rollouts(requests, doing)]
        utility = {c.key: _utility(plan, c, rows) for c in left}
        left.sort(key=lambda c: (-utility[c.key], c.key))
        left = left[: max(min(SURVIVORS, len(left)), math.ceil(len(left) / 2))]
    return rows


def _utility(plan: ModelPlan, candidate: Candidate, rows: Sequence[Row]) -> float:
    arm = _arm(candidate, "", rows)
    return (arm.score or 0.0) - plan.cost_weight * arm.usd


def _arm(candidate: Candidate, model: str, rows: Sequence[Row]) -> ModelArm:
    mine = [row for row in rows if row.candidate == candidate.key]
    scores = [row.score for row in mine if row.score is not None]
    waits = [row.latency_s for row in mine if row.latency_s is not None]
    usd = math.fsum(row.cost_usd for row in mine) / len(mine) if mine else 0.0
    score = math.fsum(scores) / len(scores) if scores else None
    return ModelArm(
        candidate=candidate,
        model=model,
        n=len(mine),
        score=score,
        usd=usd,
        latency_s=math.fsum(waits) / len(waits) if waits else None,
        usd_per_success=usd / score if score else None,
    )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "the same share"
