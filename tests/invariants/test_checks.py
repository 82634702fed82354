"""Each check accepts what is right and names what is broken; no database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from orchestrator.invariants.budgets import BudgetRow, EntryRow, check_budgets
from orchestrator.invariants.finding import Finding
from orchestrator.invariants.jobs import JobRow, OwnedRow, check_jobs, check_owned
from orchestrator.invariants.logs import AttemptRow, StreamRow, check_attempts, check_whole
from orchestrator.invariants.owners import (
    EndRow,
    RungRow,
    StepRow,
    TallyRow,
    Turn,
    WaitRow,
    check_ends,
    check_open_rollouts,
    check_rungs,
    check_steps,
    check_tallies,
    check_waiting,
)
from orchestrator.invariants.rollouts import (
    EventRow,
    RolloutRow,
    Told,
    VerdictRow,
    check_course,
    check_once,
    check_retry,
    check_score,
    check_verdicts,
)
from orchestrator.invariants.verification import INVARIANTS
from orchestrator.invariants.webhooks import DeliveryRow, check_deliveries


def names(findings: Iterable[Finding]) -> list[str]:
    found = [finding.invariant for finding in findings]
    assert set(found) <= set(INVARIANTS)
    return found


@pytest.mark.parametrize(
    ("row", "is_whole"),
    [
        ((0, 0, None, None), True),
        ((3, 3, 1, 3), True),
        ((3, 2, 1, 3), False),  # one is missing inside
        ((3, 2, 1, 2), False),  # the last is missing
        ((2, 2, 2, 3), False),  # the first is missing
        ((2, 3, 1, 3), False),  # the counter is behind
        ((1, 0, None, None), False),  # all are missing
    ],
)
def test_a_log_is_one_to_n(row: tuple[int, int, int | None, int | None], is_whole: bool) -> None:
    assert names(check_whole([StreamRow(1, "run", *row)])) == ([] if is_whole else ["log.whole"])


def test_an_older_attempt_writes_nothing_after_a_newer_one() -> None:
    rows = [AttemptRow(1, 1, "train.step", 1), AttemptRow(1, 2, "train.step", 2)]
    assert names(check_attempts(rows)) == []
    assert names(check_attempts([*rows, AttemptRow(2, 1, "train.step", 1)])) == []
    late = AttemptRow(1, 3, "train.step", 1)
    assert names(check_attempts([*rows, late])) == ["log.attempts"]


def rollout(**changes: Any) -> RolloutRow:
    fields: dict[str, Any] = {
        **{"id": 1, "stream_id": 5, "run_id": 1, "harness_id": 1, "task_id": 1, "replicate": 0},
        **{"seed": 9, "state": "scored", "score": 1.0, "message": "", "cause": "", "attempt": 1},
        **{"is_replaced": False, "retry_of_id": None},
    }
    return RolloutRow(**{**fields, **changes})


def lost(**changes: Any) -> RolloutRow:
    fields = {"state": "errored", "score": None, "message": "gone", "cause": "worker_lost"}
    return rollout(**{**fields, "is_replaced": True, **changes})


def end(seq: int = 4, **payload: Any) -> EventRow:
    return EventRow(5, seq, seq, "rollout.ended", {"state": "scored", "score": 1.0, **payload})


def told(*ended: EventRow, last_seq: int = 4, started: int = 1, verdicts: Any = ()) -> Told:
    return Told(last_seq, started, False, ended, verdicts)


def test_rollouts_count_once() -> None:
    assert names(check_once([(1, 1, 1, 0, 1)])) == []
    assert names(check_once([(1, 1, 1, 0, 2)])) == ["rollout.once"]


def test_only_what_a_lost_worker_cut_off_is_repeated() -> None:
    retry = rollout(id=2, retry_of_id=1, attempt=2)
    assert names(check_retry(lost(), retry)) == []
    assert names(check_retry(lost(), None)) == ["rollout.retry"]
    assert names(check_retry(lost(), retry._replace(seed=8))) == ["rollout.retry"]
    assert names(check_retry(lost(), retry._replace(attempt=3))) == ["rollout.retry"]
    assert names(check_retry(rollout(is_replaced=True), retry)) == ["rollout.retry"]
    assert names(check_retry(lost(cause="reset_failed"), retry)) == ["rollout.retry"]


def test_an_end_is_told_once_last_and_as_the_row_says() -> None:
    assert names(check_course(rollout(), told(end()))) == []
    assert names(check_course(rollout(state="running"), told())) == []
    assert names(check_course(rollout(), told())) == ["rollout.ended"]
    assert names(check_course(rollout(), told(last_seq=1)._replace(is_removed=True))) == []
    assert names(check_course(rollout(), told(end(3), end(4)))) == ["rollout.ended"]
    assert names(check_course(rollout(), told(end(), last_seq=5))) == ["rollout.ended"]
    assert names(check_course(rollout(), told(end(), started=2))) == ["rollout.ended"]
    assert names(check_course(rollout(state="running"), told(end()))) == ["rollout.ended"]
    assert names(check_course(rollout(), told(end(score=0.0)))) == ["rollout.score"]
    assert names(check_course(rollout(), told(end(state="errored")))) == ["rollout.score"]


def test_a_failure_is_no_number_and_has_a_reason() -> None:
    assert names(check_score(rollout())) == names(check_score(lost())) == []
    assert names(check_score(rollout(score=None))) == ["rollout.score"]
    assert names(check_score(lost(score=0.0))) == ["rollout.score"]
    assert names(check_score(lost(message=""))) == ["rollout.score"]


def verdict(state: str = "scored", value: float | None = 1.0) -> VerdictRow:
    return VerdictRow(1, "c", state, value)


def verdict_event(state: str = "scored", value: float | None = 1.0) -> EventRow:
    return EventRow(5, 3, 3, "verdict", {"criterion": "c", "state": state, "value": value})


def test_verdicts_of_rows_and_log_agree() -> None:
    log = told(end(), verdicts=[verdict_event()])
    assert names(check_verdicts(rollout(), [verdict()], log)) == []
    assert names(check_verdicts(rollout(), [], log)) == ["rollout.verdicts"]
    assert names(check_verdicts(rollout(), [verdict(value=0.5)], log)) == ["rollout.verdicts"]
    odd = told(end(), verdicts=[verdict_event("good", None)])
    assert names(check_verdicts(rollout(), [verdict("good", None)], odd)) == ["rollout.verdicts"]
    zero = told(end(), verdicts=[verdict_event("errored", 0.0)])
    assert names(check_verdicts(rollout(), [verdict("errored", 0.0)], zero)) == ["rollout.verdicts"]
    pending = told(end(), verdicts=[verdict_event("pending", None)])
    found = names(check_verdicts(rollout(), [verdict("pending", None)], pending))
    assert found == ["rollout.verdicts"]


def course(kind: str, state: str, *told: str) -> EndRow:
    """With a log that tells these states; of a run it would have the end alone."""
    over = ("completed", "failed", "cancelled")
    return EndRow(kind, 1, state, state in over, [Turn(each, each in over) for each in told])


@pytest.mark.parametrize(
    "row",
    [
        course("run", "completed", "completed"),
        course("run", "running"),
        course("climb", "cancelled", "running", "paused", "running", "cancelled"),
        course("search", "awaiting_approval", "running", "awaiting_approval"),
        course("search", "running", "running", "failed", "running"),
        course("search", "queued", "failed", "queued"),
        course("search", "paused", "running", "failed", "running", "paused"),
        course("search", "failed", "running", "failed", "running", "failed"),
        course("search", "cancelled", "running", "failed", "running", "cancelled"),
    ],
)
def test_what_ends_once_after_each_start_is_sound(row: EndRow) -> None:
    assert names(check_ends([row])) == []


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (course("run", "completed"), "completed, and its log has no end"),
        (course("run", "failed", "completed"), "the row says failed, the log completed"),
        (course("run", "running", "completed"), "running, and its log has an end: completed"),
        (course("run", "failed", "failed", "failed"), "its log tells failed after failed"),
        (course("climb", "completed", "running"), "completed, and its log has no end"),
        (course("search", "cancelled", "failed", "running"), "cancelled, and its log has no end"),
        (course("search", "running", "running", "failed"), "running, and its log has an end"),
        (course("search", "failed", "failed", "failed"), "its log tells failed after failed"),
        (course("search", "cancelled", "failed", "cancelled"), "tells cancelled after failed"),
        (course("search", "paused", "failed", "paused"), "its log tells paused after failed"),
        (course("search", "running", "completed", "running"), "tells running after completed"),
        (course("search", "running", "cancelled", "running"), "tells running after cancelled"),
        (course("climb", "running", "failed", "running"), "its log tells running after failed"),
    ],
)
def test_a_second_end_and_a_state_after_the_end_are_found(row: EndRow, told: str) -> None:
    (finding,) = check_ends([row])
    assert names([finding]) == ["owner.ended"]
    assert told in finding.text


def test_a_run_that_has_ended_has_no_open_rollouts() -> None:
    assert names(check_open_rollouts([(1, "completed", 0)])) == []
    assert names(check_open_rollouts([(1, "completed", 1)])) == ["run.rollouts"]


def test_what_is_not_over_has_something_that_moves_it() -> None:
    assert names(check_waiting([WaitRow("climb 1", "running", 1)])) == []
    assert names(check_waiting([WaitRow("climb 1", "running", 0)])) == ["owner.job"]
    rows = [OwnedRow("run 1", "running", state) for state in ("queued", "running")]
    assert names(check_owned(rows)) == []
    assert names(check_owned([OwnedRow("run 1", "running", "done")])) == ["owner.job"]
    assert names(check_owned([OwnedRow("run 1", "queued", None)])) == ["owner.job"]


def test_what_a_run_told_is_what_its_rollouts_add_up_to() -> None:
    counted = {"scored": 2, "cost_usd": 0.1 + 0.2, "mean": None}
    assert names(check_tallies([TallyRow(1, {**counted, "cost_usd": 0.3}, counted)])) == []
    assert names(check_tallies([TallyRow(1, {**counted, "scored": 3}, counted)])) == ["run.tally"]


def test_rungs_and_steps() -> None:
    done = RungRow(1, "completed", 0, "done", "better")
    assert names(check_rungs([done])) == []
    assert names(check_rungs([done._replace(verdict="")])) == ["climb.rungs"]
    assert names(check_rungs([done._replace(state="running", verdict="")])) == ["climb.rungs"]
    steps = [StepRow(1, 1, 2), StepRow(1, 2, 2), StepRow(2, 1, 1)]
    assert names(check_steps(steps)) == []
    assert names(check_steps([steps[0], steps[0]])) == ["training.steps"]
    assert names(check_steps([steps[1]])) == ["training.steps"]
    assert names(check_steps([StepRow(1, 1, 0)])) == ["training.steps"]


def job(**changes: Any) -> JobRow:
    fields: dict[str, Any] = {
        **{"id": 1, "kind": "k", "state": "running", "attempt": 1, "strikes": 1},
        **{"max_attempts": 5, "worker": "h:1", "error": "", "overdue_s": -3.0},
        **{"has_started": True, "has_ended": False},
    }
    return JobRow(**{**fields, **changes})


def test_jobs() -> None:
    assert names(check_jobs([job()], at_rest=False)) == []
    assert names(check_jobs([job()], at_rest=True)) == ["job.rest"]
    assert names(check_jobs([job(overdue_s=600.0)], at_rest=False)) == ["job.lease"]
    assert names(check_jobs([job(worker="")], at_rest=False)) == ["job.lease"]
    done = job(state="done", has_ended=True)
    assert names(check_jobs([done], at_rest=True)) == []
    for wrong in (
        done._replace(has_ended=False),
        done._replace(has_started=False),
        done._replace(attempt=0, strikes=0),
        done._replace(state="lost"),
        done._replace(state="failed"),
        done._replace(strikes=2),
        job(attempt=9, strikes=6),
    ):
        assert names(check_jobs([wrong], at_rest=False)) == ["job.state"], wrong


def budget(**changes: Any) -> BudgetRow:
    fields: dict[str, Any] = {"id": 1, "scope": "climb:1", "role": "agent", "unit": "rollouts"}
    return BudgetRow(**{**fields, "cap": 10.0, "used": 4.0, "reserved": 3.0, **changes})


ENTRIES = [
    EntryRow(1, "reserve", "a", 5.0),
    EntryRow(1, "settle", "a", 4.0),
    EntryRow(1, "reserve", "b", 3.0),
    EntryRow(1, "reserve", "c", 2.0),
    EntryRow(1, "refund", "c", 0.0),
]


def test_budgets() -> None:
    assert names(check_budgets([budget()], ENTRIES)) == []
    assert names(check_budgets([budget(used=8.0)], ENTRIES)) == ["budget.sums", "budget.cap"]
    assert names(check_budgets([budget(reserved=0.0)], ENTRIES)) == ["budget.sums"]
    assert names(check_budgets([budget(cap=6.0)], ENTRIES)) == ["budget.cap"]
    estimated = budget(unit="tokens", used=4.5, cap=7.0)
    assert names(check_budgets([estimated], ENTRIES)) == []
    assert names(check_budgets([estimated._replace(used=3.0)], ENTRIES)) == ["budget.sums"]
    twice = [*ENTRIES, EntryRow(1, "refund", "a", 0.0)]
    assert "budget.once" in names(check_budgets([budget()], twice))
    more = [EntryRow(1, "reserve", "a", 1.0), EntryRow(1, "settle", "a", 4.0)]
    assert names(check_budgets([budget(reserved=0.0)], more)) == ["budget.once"]
    unknown = [EntryRow(1, "settle", "a", 4.0)]
    assert "budget.once" in names(check_budgets([budget(reserved=0.0)], unknown))


def test_deliveries() -> None:
    rows = [
        DeliveryRow(1, "delivered", ["no answer", ""], "done"),
        DeliveryRow(2, "waiting", ["no answer"], "queued"),
        DeliveryRow(3, "failed", ["no answer"], "failed"),
    ]
    assert names(check_deliveries(rows)) == []
    assert names(check_deliveries([rows[0]._replace(errors=[])])) == ["webhook.delivered"]
    assert names(check_deliveries([rows[1]._replace(errors=[""])])) == ["webhook.delivered"]
    assert names(check_deliveries([rows[1]._replace(job_state="done")])) == ["webhook.job"]
    assert names(check_deliveries([rows[1]._replace(job_state=None)])) == ["webhook.job"]
