"""What a search ends with, as rows: effects, candidates, graves, certificates, outcome."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from optimizer.certification import Certificate
from optimizer.engines import contract
from optimizer.engines.contract import SEED, Phase, Row
from optimizer.harness import CONFIG
from optimizer.model_choice import REPLICATES as MODEL_REPLICATES
from optimizer.model_choice import ModelChoice
from optimizer.models import Candidate, Comparison, HarnessVersion, Search, SearchRun, Tombstone
from optimizer.models import Edit as EditRow
from optimizer.search_plan import Finished
from optimizer.store import load_harness
from orchestrator.environments.models import Split
from orchestrator.events.services import Fence
from orchestrator.searches.asking import hold
from orchestrator.searches.rows import store_candidate
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.telling import say

_EFFECT = (
    "effect_mean",
    "effect_sd",
    "probability_positive",
    "rollouts_with",
    "rollouts_without",
    "in_bundle",
)
_FIGURES = ("rollouts", "score", "cost_usd", "tokens", "latency_s")


def conclude(
    *,
    search: Search,
    settings: SearchSettings,
    found: Finished,
    rows: Sequence[Row],
    fence: Fence,
) -> None:
    """Stores all of it, once: after a kill the same conclusion is reached again, and must not be
    told twice.
    """
    with transaction.atomic():
        hold(search, fence)
        worth = worth_its_cost(found, settings, rows)
        is_promotable = found.is_promotable and worth > 0
        is_shipped = found.shipped.key != SEED.key and (worth > 0 or not found.is_promotable)
        shipped = found.shipped if is_shipped else SEED
        ours = harness_for(search, found.winner)
        choice = found.model_choice
        # What was chosen is the shipped harness on another model, shown to be not inferior.
        swapped = choice.chosen if choice and choice.chosen.key != found.shipped.key else None
        if swapped is not None and found.shipped.key == shipped.key:
            shipped = swapped
        reason = _reason(found, worth)
        outcome = {
            "verdict": str(found.verdict),
            "reason": reason,
            "is_measured": found.is_measured,
            "is_promotable": is_promotable,
            "winner": ours.pk,
            "winner_sha256": ours.sha256,
            "shipped": harness_for(search, shipped).pk,
            "edits": [edit.sha256 for edit in found.winner.edits],
            "claimed": found.claimed if is_shipped else 0.0,
            "noise": None if found.noise is None else dict(vars(found.noise)),
            "models": None if choice is None else model_table(search, choice),
        }
        if not Search.objects.filter(pk=search.pk, outcome={}).update(outcome=outcome):
            return
        note_candidates(search, rows)
        _store_tried(search, found)
        _store_effects(search, found, shipped)
        _bury(search, found)
        runs = list(
            SearchRun.objects.filter(search=search, phase=Phase.CERTIFY).values_list(
                "run", flat=True
            )
        )
        for certificate in found.certificates:
            _store_certificate(search, certificate, rows, runs)
        _mark(search, found, is_promotable=is_promotable)
        say(search, sentence(found, is_promotable=is_promotable, reason=reason), fence)


def model_table(search: Search, choice: ModelChoice) -> dict[str, Any]:
    """What the models did and cost under the shipped harness, for the page."""
    own = search.model.name if search.model is not None else ""
    return {
        "chosen": _model_of(choice.chosen, own),
        "reason": choice.reason,
        "arms": [
            {
                "model": json.loads(arm.model) if arm.model else own,
                "rollouts": arm.n,
                "score": arm.score,
                "usd": arm.usd,
                "latency_s": arm.latency_s,
                "usd_per_success": arm.usd_per_success,
            }
            for arm in choice.arms
        ],
        "tests": [
            {
                "model": _model_of(test.candidate, own),
                "verdict": str(test.test.verdict),
                "pairs": test.test.valid,
                "difference": test.comparison.mean,
                "margin": test.test.shift,
                "sentence": test.sentence,
            }
            for test in choice.tests
        ],
    }


def _model_of(candidate: contract.Candidate, own: str) -> str:
    set_by = [e.content for e in candidate.edits if e.component == CONFIG and e.anchor == "model"]
    return str(json.loads(set_by[-1])) if set_by else own


def harness_for(search: Search, candidate: contract.Candidate) -> HarnessVersion:
    """Needs a transaction."""
    if candidate.key == SEED.key:
        return search.seed_harness
    return store_candidate(search, candidate).harness


def worth_its_cost(found: Finished, settings: SearchSettings, rows: Sequence[Row]) -> float:
    """ΔU = Δquality − λ·Δcost of the winner over its fresh pairs; infinite where λ is 0."""
    certificate = found.certificate
    if not settings.cost_weight or certificate is None or certificate.comparison.mean is None:
        return math.inf
    costs: dict[str, list[float]] = {}
    for row in rows:
        if row.phase == Phase.CERTIFY and row.score is not None:
            costs.setdefault(row.candidate, []).append(row.cost_usd)
    ours, base = costs.get(found.winner.key), costs.get(SEED.key)
    if not ours or not base:
        return math.inf
    more = math.fsum(ours) / len(ours) - math.fsum(base) / len(base)
    return certificate.comparison.mean - settings.cost_weight * more


def _reason(found: Finished, worth: float) -> str:
    if worth > 0:
        return found.reason
    return f"{found.reason}; but its gain is not worth what it costs (ΔU {worth:+.3f})"


def sentence(found: Finished, *, is_promotable: bool, reason: str) -> str:
    edits = found.winner.edits
    n_demonstrations = sum(edit.is_demonstration for edit in edits)
    others = len(edits) - n_demonstrations
    parts = []
    if n_demonstrations:
        parts.append(f"{n_demonstrations} demonstration{'s' if n_demonstrations > 1 else ''}")
    if others:
        parts.append(f"{others} other edit{'s' if others > 1 else ''}")
    what = " and ".join(parts) or "The seed"
    verb = "certified" if is_promotable else "not certified"
    return f"{what} on select tasks: {verb}, {reason}."


# --- candidates ---------------------------------------------------------------------------------


def note_candidates(search: Search, rows: Sequence[Row]) -> None:
    """Means of each candidate on train tasks, for the tree and the Pareto plot."""
    seen: dict[str, list[Row]] = {}
    for row in rows:
        if row.score is not None and not _is_on_select(row):
            seen.setdefault(row.candidate, []).append(row)
    changed = []
    for candidate in search.candidates.filter(key__in=seen):
        own = seen[candidate.key]
        if candidate.rollouts == len(own):
            continue
        candidate.rollouts = len(own)
        candidate.score = _mean([row.score for row in own])
        candidate.cost_usd = _mean([row.cost_usd for row in own])
        candidate.tokens = _mean([row.tokens for row in own])
        candidate.latency_s = _mean([row.latency_s for row in own])
        changed.append(candidate)
    Candidate.objects.bulk_update(changed, _FIGURES, batch_size=200)


def _is_on_select(row: Row) -> bool:
    is_test_of_a_model = row.phase == Phase.MODELS and row.replicate < MODEL_REPLICATES
    return row.phase == Phase.CERTIFY or is_test_of_a_model


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _store_tried(search: Search, found: Finished) -> None:
    rows = {row.key: row for row in search.candidates.all()}
    changed = []
    for tried in found.tried:
        row = rows.get(tried.candidate.key)
        if row is None:
            continue
        parent = rows.get(tried.parent) or (None if row.key == SEED.key else rows.get(SEED.key))
        row.parent, row.relation, row.estimate = parent, tried.relation, tried.estimate
        changed.append(row)
    Candidate.objects.bulk_update(changed, ["parent", "relation", "estimate"], batch_size=200)


def _mark(search: Search, found: Finished, *, is_promotable: bool) -> None:
    tested = {c.candidate.key: c for c in found.certificates}
    for key, certificate in tested.items():
        is_good = certificate.is_promotable and (key != found.winner.key or is_promotable)
        status = Candidate.Status.CERTIFIED if is_good else Candidate.Status.NOT_CERTIFIED
        search.candidates.filter(key=key).update(status=status)
    search.candidates.exclude(key__in=tested).exclude(key=SEED.key).filter(
        status=Candidate.Status.RACING
    ).update(status=Candidate.Status.REJECTED)


# --- edits --------------------------------------------------------------------------------------


def _store_effects(search: Search, found: Finished, shipped: contract.Candidate) -> None:
    rows = {row.sha256: row for row in search.edits.all()}
    kept = {edit.sha256 for edit in shipped.edits}
    changed = []
    for estimate in found.estimates:
        row = rows.get(estimate.edit.sha256)
        if row is None:
            continue
        row.effect_mean, row.effect_sd = estimate.mean, estimate.sd
        row.probability_positive = estimate.probability_positive
        row.rollouts_with, row.rollouts_without = estimate.n_with, estimate.n_without
        changed.append(row)
    for row in rows.values():
        row.in_bundle = row.sha256 in kept
    EditRow.objects.bulk_update(rows.values(), _EFFECT, batch_size=200)


def _bury(search: Search, found: Finished) -> None:
    for grave in found.buried:
        Tombstone.objects.get_or_create(
            search=search,
            edit_sha256=grave.edit.sha256,
            defaults={
                "edit": grave.edit.to_json(),
                "reason": grave.reason,
                "evidence": dict(grave.evidence),
                "support": grave.edit.support,
            },
        )


# --- certificates -------------------------------------------------------------------------------


def _store_certificate(
    search: Search, certificate: Certificate, rows: Sequence[Row], runs: Sequence[int]
) -> None:
    test, comparison = certificate.test, certificate.comparison
    harness = harness_for(search, certificate.candidate)
    Comparison.objects.get_or_create(
        search=search,
        method="e_process",
        details__number=certificate.number,
        defaults={
            "project": search.project,
            "split": Split.SELECT,
            "verdict": test.verdict.value,
            "pairs": test.valid,
            "coverage": test.coverage,
            "difference": comparison.mean,
            "low": comparison.low,
            "high": comparison.high,
            "e_value": test.evidence,
            "alpha": test.alpha,
            "details": _details(search, certificate, harness, rows) | {"runs": list(runs)},
        },
    )


def _details(
    search: Search, certificate: Certificate, harness: HarnessVersion, rows: Sequence[Row]
) -> dict[str, Any]:
    test = certificate.test
    sides = {SEED.key: "base", certificate.candidate.key: "candidate"}
    spent: dict[str, dict[str, float]] = {
        side: {"rollouts": 0, "tokens": 0, "cost_usd": 0.0} for side in sides.values()
    }
    for row in rows:
        if row.phase == Phase.CERTIFY and row.candidate in sides:
            own = spent[sides[row.candidate]]
            own["rollouts"] += 1
            own["tokens"] += row.tokens
            own["cost_usd"] += row.cost_usd
    return {
        "number": certificate.number,
        "harness": harness.sha256,
        "seed_harness": search.seed_harness.sha256,
        "candidate": certificate.candidate.key,
        "edits": [edit.sha256 for edit in certificate.candidate.edits],
        "sentence": certificate.sentence,
        "reason": test.reason,
        "crossing_pair": test.crossing_pair,
        "threshold": test.threshold,
        "shift": test.shift,
        "scheduled": test.scheduled,
        "e_plus": list(test.e_plus),
        "e_minus": list(test.e_minus),
        "breached": list(certificate.breached),
        "guards": [_guard(guard) for guard in certificate.guards],
        "tasks": sorted({pair.task for pair in certificate.pairs}),
        "pairs": [[pair.task, pair.base, pair.candidate] for pair in certificate.pairs],
        "seed": search.seed,
        "fingerprints": search.fingerprints,
        "spent": spent,
    }


def _guard(guard: Any) -> Mapping[str, Any]:
    return {
        "name": guard.name,
        "pairs": guard.pairs,
        "mean": guard.mean,
        "upper": guard.upper,
        "is_breached": guard.is_breached,
    }


def seed_candidate(search: Search) -> None:
    """The seed is a candidate too, the root of the tree. Needs a transaction."""
    store_candidate(search, SEED, load_harness(search.seed_harness))
