"""The sealed test of a search: both sides once, after the certificate, and never again."""

from __future__ import annotations

from django.db import transaction

from optimizer.models import Comparison, HarnessVersion, Search
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import Fence
from orchestrator.runs.models import Purpose, Run
from orchestrator.runs.services import PlannedRollout
from orchestrator.searches import verdicts
from orchestrator.searches.asking import ask_for_run, hold
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.telling import say
from orchestrator.searches.verdicts import points

PHASE = "test"


def ask_for_test(
    *, search: Search, settings: SearchSettings, harness: HarnessVersion, fence: Fence
) -> Run:
    """The one reading of the sealed split that the search's claim is allowed."""
    tasks = Task.objects.filter(version_id=search.environment_version_id, split=Split.TEST)
    plan = [
        PlannedRollout(side, task, replicate)
        for replicate in range(settings.test_replicates)
        for task in tasks.order_by("key")
        for side in (search.seed_harness_id, harness.pk)
    ]
    return ask_for_run(
        search=search,
        settings=settings,
        key=PHASE,
        phase=PHASE,
        label="Sealed test",
        purpose=Purpose.EVALUATE,
        plan=plan,
        # One seed for both sides: the comparison is paired on task and seed.
        seed_part=PHASE,
        fence=fence,
    )


def conclude_test(*, search: Search, harness: HarnessVersion, run: Run, fence: Fence) -> Comparison:
    """Stores and tells the verdict, once."""
    known = search.comparisons.filter(split=Split.TEST).first()
    if known is not None:
        return known
    comparison = verdicts.compared(
        base_run=run.pk, base_harness=search.seed_harness_id, run=run.pk, harness=harness.pk
    )
    verdict = verdicts.paired_verdict(comparison)
    with transaction.atomic():
        hold(search, fence)
        stored = Comparison.objects.create(
            project=search.project,
            search=search,
            split=Split.TEST,
            method=verdicts.METHOD,
            verdict=verdict,
            pairs=comparison.pairs,
            coverage=comparison.coverage,
            difference=comparison.mean,
            low=comparison.low,
            high=comparison.high,
            alpha=verdicts.LEVEL,
            details={
                **verdicts.details_of(comparison),
                "run": run.pk,
                "harness": harness.sha256,
                "seed_harness": search.seed_harness.sha256,
                "seed": run.seed,
                "tasks": sorted(set(run.rollouts.values_list("task__key", flat=True))),
                "fingerprints": search.fingerprints,
            },
        )
        say(search, _sentence(stored), fence)
    return stored


def _sentence(stored: Comparison) -> str:
    if stored.difference is None or stored.verdict == "infrastructure":
        return (
            f"Sealed test: only {stored.coverage:.0%} of the pairs have two scores; that is too "
            "few for a verdict."
        )
    interval = f"[{points(stored.low or 0.0)}, {points(stored.high or 0.0)}]"
    said = f"{points(stored.difference)} points {interval} over the seed"
    on = f"on {stored.details['units']} sealed tasks"
    return f"Sealed test: {stored.verdict}, {said} {on}."
