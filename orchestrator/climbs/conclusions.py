"""What a rung's reading of the sealed test says: score, gain over the rung before, verdict.

The gain is paired on task and seed; its interval is the bootstrap over tasks. `better` and
`regressed` need an interval on one side of zero, anything else is `inconclusive`. Where all tasks
changed alike the interval has no width, and the exact sign test has to agree. Below the coverage
floor there is no verdict but `infrastructure`.
"""

from __future__ import annotations

import math
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from optimizer.models import Comparison
from optimizer.statistics import PairedResult, wilson_interval
from orchestrator.climbs.models import Rung, RungKind, RungState
from orchestrator.environments.models import Split
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.runs import queries
from orchestrator.runs.models import Rollout, Run
from orchestrator.runs.services import COVERAGE_FLOOR
from orchestrator.searches.verdicts import (
    LEVEL,
    METHOD,
    compared,
    details_of,
    paired_verdict,
    points,
)


def conclude_rung(*, rung: Rung, run: Run, base: Rung | None, fence: Fence) -> None:
    """Gives the rung its verdict from its test run, compared with the rung `base`."""
    tally = queries.tally(run.pk)
    comparison = None if base is None else _compare(rung, run, base)
    verdict = _verdict(tally, comparison, is_reference=base is None)
    with transaction.atomic():
        hold_fence(fence)
        row = None if comparison is None else _store(rung, comparison, verdict)
        if tally.scored and tally.mean is not None:
            rung.score = tally.mean
            rung.score_low, rung.score_high = wilson_interval(
                tally.mean * tally.scored, tally.scored
            )
        rung.n_scored, rung.n_errored = tally.scored, tally.errored
        rung.verdict, rung.comparison = verdict, row
        rung.sentence = _sentence(rung, tally, comparison, base)
        rung.certificate = _certificate(rung, run, base, row)
        _end(rung, fence)


def conclude_without_test(*, rung: Rung, verdict: str, sentence: str, fence: Fence) -> None:
    """For a rung that changed nothing: there is nothing to read the sealed test for."""
    with transaction.atomic():
        hold_fence(fence)
        rung.verdict, rung.sentence = verdict, sentence
        _end(rung, fence)


def _compare(rung: Rung, run: Run, base: Rung) -> PairedResult:
    assert base.test_run_id is not None
    assert base.harness_id is not None
    assert rung.harness_id is not None
    return compared(
        base_run=base.test_run_id, base_harness=base.harness_id, run=run.pk, harness=rung.harness_id
    )


def _verdict(tally: queries.Tally, comparison: PairedResult | None, *, is_reference: bool) -> str:
    if not tally.scored or tally.coverage < COVERAGE_FLOOR:
        return "infrastructure"
    if is_reference:
        return "reference"
    return paired_verdict(comparison)


def _store(rung: Rung, comparison: PairedResult, verdict: str) -> Comparison:
    return Comparison.objects.create(
        project=rung.climb.project,
        search=None,
        split=Split.TEST,
        method=METHOD,
        verdict=verdict,
        pairs=comparison.pairs,
        coverage=comparison.coverage,
        difference=comparison.mean,
        low=comparison.low,
        high=comparison.high,
        alpha=LEVEL,
        details=details_of(comparison),
    )


def _sentence(
    rung: Rung, tally: queries.Tally, comparison: PairedResult | None, base: Rung | None
) -> str:
    name = rung.get_kind_display()
    if rung.verdict == "infrastructure":
        return (
            f"{name}: only {tally.scored} of {tally.scored + tally.errored} test rollouts have a "
            "score; that is too few for a verdict."
        )
    if comparison is None or base is None or comparison.mean is None:
        return f"{name}: {tally.passed} of {tally.scored} sealed test tasks right."
    gain = f"{points(comparison.mean)} points"
    interval = f"[{points(comparison.low or 0.0)}, {points(comparison.high or 0.0)}]"
    against = f"over {base.get_kind_display().lower()}"
    if rung.verdict == "better":
        return f"{name}: {gain} {interval} {against} on {comparison.units} sealed tasks."
    if rung.verdict == "regressed":
        return f"{name}: worse, {gain} {interval} {against} on {comparison.units} sealed tasks."
    return (
        f"{name}: {gain} {interval} {against}; {comparison.units} tasks are too few to say "
        f"more.{_needed(comparison)}"
    )


def _needed(comparison: PairedResult) -> str:
    """How many tasks an interval of this spread needs to leave zero out (n = (1.96·sd/mean)²)."""
    if not comparison.mean or not comparison.sd:
        return ""
    needed = math.ceil((1.96 * comparison.sd / comparison.mean) ** 2)
    if needed <= comparison.units:
        return ""
    return f" A gain of this size would show on about {needed} tasks."


def _certificate(
    rung: Rung, run: Run, base: Rung | None, comparison: Comparison | None
) -> dict[str, Any]:
    climb = rung.climb
    return {
        "rung": rung.kind,
        "environment": f"{climb.environment_version}",
        "environment_sha256": climb.environment_version.sha256,
        "rubric": f"{climb.rubric_version}",
        "rubric_sha256": climb.rubric_version.sha256,
        "harness_sha256": rung.harness.sha256 if rung.harness else "",
        "adapter_sha256": rung.adapter_sha256,
        "model": climb.model.model,
        "test_run": run.pk,
        "tasks": list(
            run.rollouts.order_by("task__key").values_list("task__key", flat=True).distinct()
        ),
        "seed": run.seed,
        "baseline_run": base.test_run_id if base else None,
        "comparison": comparison.pk if comparison else None,
        "scored": rung.n_scored,
        "errored": rung.n_errored,
        "verdict": rung.verdict,
        "measured_at": timezone.now().isoformat(timespec="seconds"),
    }


def _end(rung: Rung, fence: Fence) -> None:
    """Needs a transaction."""
    spent = Rollout.objects.filter(
        run__climb_run__climb_id=rung.climb_id, run__climb_run__rung_index=rung.index
    )
    totals = spent.aggregate(
        tokens_in=Sum("tokens_in"), tokens_out=Sum("tokens_out"), cost=Sum("cost_usd")
    )
    rung.rollouts_spent = spent.count()
    rung.tokens_spent = (totals["tokens_in"] or 0) + (totals["tokens_out"] or 0)
    rung.cost_usd = totals["cost"] or 0.0
    rung.state, rung.progress, rung.doing = RungState.DONE, 1.0, ""
    rung.ended_at = timezone.now()
    rung.save()
    append(
        stream_id=rung.climb.stream_id,
        items=[
            NewEvent("rung", rung_payload(rung)),
            NewEvent("decision", {"text": rung.sentence}),
        ],
        fence=fence,
    )


def rung_payload(rung: Rung) -> dict[str, Any]:
    comparison = rung.comparison
    seconds = (
        (rung.ended_at - rung.started_at).total_seconds()
        if rung.started_at and rung.ended_at
        else None
    )
    return {
        "index": rung.index,
        "kind": RungKind(rung.kind).value,
        "state": RungState(rung.state).value,
        "verdict": rung.verdict,
        "score": rung.score,
        "score_low": rung.score_low,
        "score_high": rung.score_high,
        "gain": comparison.difference if comparison else None,
        "gain_low": comparison.low if comparison else None,
        "gain_high": comparison.high if comparison else None,
        "n_scored": rung.n_scored,
        "n_errored": rung.n_errored,
        "rollouts_spent": rung.rollouts_spent,
        "tokens_spent": rung.tokens_spent,
        "cost_usd": rung.cost_usd,
        "seconds": seconds,
        "sentence": rung.sentence,
    }
