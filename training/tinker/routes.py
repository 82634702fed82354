"""Four ways of computing ECHO through the Tinker verbs, and which one a job takes.

    D  one pass: both terms as a traced loss that the server runs
    A  two passes: the policy term by a loss of the protocol, awaited, then cross-entropy on what
       the environment said
    C  two passes and a half: both terms as a loss that the SDK runs here
    B  one pass: one cross-entropy with signed weights. It has no ratio, so it is exact for
       REINFORCE, and for the others where samples are of the current weights

D, A and C are exact for whatever they can express. The servers' side is measured
(`conformance.probe`); what the objective asks of a route is decided here. Pure. Source: reference
document on training, section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from training.losses import has_policy_penalty
from training.types import ObjectiveSpec, PolicyLoss

ORDER = ("D", "A", "C", "B")
"""In which they are taken."""
WHAT = {
    "A": "importance sampling, then cross-entropy",
    "B": "cross-entropy with signed weights",
    "C": "a custom loss that the SDK runs",
    "D": "a custom loss that the server runs",
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The route of a job, or why there is none."""

    route: str
    """Empty: none."""
    passed_over: Mapping[str, str]
    """Route to a sentence, for those that come before it; for all of them if there is none."""

    @property
    def refusal(self) -> str:
        """Why nothing is trained there; empty where there is a route."""
        if self.route:
            return ""
        said = dict.fromkeys(self.passed_over.values())
        return " ".join(["No route computes this objective exactly on this server.", *said])


def choose(
    spec: ObjectiveSpec,
    *,
    allowed: Collection[str],
    refused: Mapping[str, str],
    honours_thresholds: bool,
    is_on_policy: bool,
) -> Chosen:
    """The first route that the server may be trusted with and that is exact for the objective.

    REINFORCE takes B before all others: there it is exact, and one pass.
    """
    order: tuple[str, ...] = ORDER
    if spec.policy_loss is PolicyLoss.REINFORCE and not has_policy_penalty(spec):
        order = ("B", *(name for name in ORDER if name != "B"))
    passed_over: dict[str, str] = {}
    for route in order:
        why = refused.get(route, "")
        if not why and route not in allowed:
            why = f"Route {route} was not measured."
        if not why:
            why = _unfit(route, spec, honours_thresholds, is_on_policy)
        if not why:
            return Chosen(route, passed_over)
        passed_over[route] = why
    return Chosen("", passed_over)


def _unfit(route: str, spec: ObjectiveSpec, honours_thresholds: bool, is_on_policy: bool) -> str:
    """Why the objective cannot take a route, or empty."""
    if route == "A":
        if not is_named(spec):
            return f"Route A: no loss of the protocol is {spec.policy_loss} with its penalties."
        if named_loss(spec)[1] and not honours_thresholds:
            return "Route A: the server does not take clip thresholds as bounds on the ratio."
    if route == "B":
        if has_policy_penalty(spec):
            return "Route B: a cross-entropy cannot hold a distance to another policy."
        if spec.policy_loss is not PolicyLoss.REINFORCE and not is_on_policy:
            return (
                "Route B: it has no ratio, and this job trains on rows of older weights "
                "(batch.max_staleness, batch.updates_per_step)."
            )
    return ""


def is_named(spec: ObjectiveSpec) -> bool:
    """Whether a loss of the protocol is exactly the policy term."""
    return spec.policy_loss is not PolicyLoss.DPPO and not has_policy_penalty(spec)


def named_loss(spec: ObjectiveSpec) -> tuple[str, dict[str, float]]:
    """The protocol's name of the policy term, and its bounds on the ratio. Needs `is_named`."""
    bounds = {
        "clip_low_threshold": 1.0 - spec.clip_low,
        "clip_high_threshold": 1.0 + spec.clip_high,
    }
    capped = {"clip_low_threshold": 0.0, "clip_high_threshold": spec.importance_cap}
    named: dict[PolicyLoss, tuple[str, dict[str, float]]] = {
        PolicyLoss.PPO_CLIP: ("ppo", bounds),
        PolicyLoss.IMPORTANCE: ("importance_sampling", {}),
        PolicyLoss.TRUNCATED_IMPORTANCE: ("cispo", capped),
        PolicyLoss.CISPO: ("cispo", bounds),
        PolicyLoss.REINFORCE: ("cross_entropy", {}),
    }
    return named[spec.policy_loss]
