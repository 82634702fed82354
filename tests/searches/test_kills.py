"""A search that is killed anywhere ends as one that was not, and asks for nothing twice.

Here kills are exceptions at a random step of the machine, and runs that stop half way; real ones
are in `test_processes.py`.
"""

from __future__ import annotations

import random

import pytest

from optimizer.models import Budget, Search, SearchState
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.searches import asking, conclusions, machine, rounds, sealed
from tests.base import People
from tests.searches.playing import demonstrations_help, facts, play, play_run, start

pytestmark = pytest.mark.django_db(transaction=True)
KILLS = 20


class Killed(BaseException):
    """As SIGKILL: nothing in the product catches it."""


def test_twenty_kills_change_nothing(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = start(people)
    play()
    calm.refresh_from_db()
    assert calm.state == SearchState.AWAITING_APPROVAL

    kills = Kills(random.Random(3))
    for module in (asking, conclusions, machine, rounds, sealed):
        monkeypatch.setattr(module, "hold", kills.around(asking.hold))
    shaken = start(people)
    kills.armed = True
    work_through(kills)
    shaken.refresh_from_db()
    assert kills.done == KILLS
    assert shaken.state == SearchState.AWAITING_APPROVAL, shaken.error
    assert course(shaken) == course(calm)
    assert facts(shaken) == facts(calm)
    assert len(set(facts(shaken))) == len(facts(shaken))
    assert spent(shaken) == spent(calm)


class Kills:
    def __init__(self, draw: random.Random) -> None:
        self.draw, self.done, self.armed = draw, 0, False

    def __call__(self) -> bool:
        """Whether it is killed here."""
        if self.armed and self.done < KILLS and self.draw.random() < 0.25:
            self.done += 1
            return True
        return False

    def around(self, hold: object) -> object:
        """Before or after the change of state begins; what it wrote is rolled back."""

        def held(*args: object) -> None:
            if self():
                raise Killed
            hold(*args)  # type: ignore[operator]

        return held


def is_even(number: int) -> bool:
    return number % 2 == 0


def everything(number: int) -> bool:
    return True


def work_through(kills: Kills, limit: int = 600) -> None:
    """As `play`; what was killed is taken up again, as after the end of its lease."""
    for _ in range(limit):
        Job.objects.filter(state=JobState.RUNNING).update(state=JobState.QUEUED)
        job = Job.objects.filter(state=JobState.QUEUED).order_by("id").first()
        if job is None:
            return
        if job.kind == "runs.execute":
            play_run(job, demonstrations_help, only=is_even if kills() else everything)
            continue
        try:
            run_attempt(job.pk)
        except Killed:
            continue
    raise AssertionError("it does not end")


def course(search: Search) -> dict[str, object]:
    """What it came to, without ids and instants."""
    outcome = {k: v for k, v in search.outcome.items() if k not in ("winner", "shipped")}
    certificates = [
        (c.split, c.verdict, c.pairs, c.difference, c.low, c.high, c.details.get("e_plus"))
        for c in search.comparisons.order_by("id")
    ]
    effects = list(search.edits.values_list("sha256", "support", "effect_mean", "in_bundle"))
    graves = sorted(search.tombstones.values_list("edit_sha256", "reason"))
    return {
        "outcome": outcome,
        "certificates": certificates,
        "effects": effects,
        "graves": graves,
        "candidates": sorted(search.candidates.values_list("key", "status", "rollouts", "score")),
    }


def spent(search: Search) -> list[tuple[str, str, float, float]]:
    rows = Budget.objects.filter(scope__startswith=f"search:{search.pk}").exclude(
        unit="milliseconds"
    )
    return sorted((row.scope.partition("/")[2], row.unit, row.used, row.reserved) for row in rows)
