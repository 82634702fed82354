"""The course of a gate: which rollouts it asks for, when it stops, and what it says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from optimizer.harness import Harness
from orchestrator.gates import machine
from orchestrator.gates.errors import GateEnded, GateRefused
from orchestrator.gates.models import Gate, GateState
from orchestrator.gates.policy import Policy
from orchestrator.gates.queries import spent_by
from orchestrator.gates.services import cancel_gate, start_gate
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs.limits import set_limits
from orchestrator.runs.models import Rollout, RolloutState, Run, VerdictRecord
from orchestrator.runs.services import cancel_run
from tests.base import People
from tests.gates.build import make_form, make_gate, played, told, worth
from tests.runs.drive import make_endpoint, make_harness
from tests.searches.playing import move, play, play_run

pytestmark = pytest.mark.django_db


def test_a_clear_gain_is_found_before_the_budget_is_spent(people: People) -> None:
    gate = played(people, worth(0.1, 0.9))
    assert (gate.state, gate.verdict, gate.reason) == ("decided", "better", "difference")
    assert spent_by(gate).rollouts < 240
    runs = Run.objects.filter(gate_run__gate=gate)
    assert {run.purpose for run in runs} == {"ci"}
    assert len(gate.decisions) == runs.count()
    assert [look["verdict"] for look in told(gate, "look")][-1] == "better"
    assert told(gate, "gate.ended")[0]["verdict"] == "better"
    last = gate.decisions[-1]
    assert last["low"] >= 0 and last["mean"] > 0.5 and last["coverage"] == 1


def test_both_sides_of_a_pair_have_the_same_seed(people: People) -> None:
    gate = played(people, worth(0.1, 0.9))
    rows = Rollout.objects.filter(run__gate_run__gate=gate)
    found = set(rows.values_list("task__key", "replicate", "seed"))
    assert len(found) * 2 == rows.count()


def test_a_loss_is_regressed(people: People) -> None:
    gate = played(people, worth(0.9, 0.1))
    assert (gate.verdict, gate.decisions[-1]["mean"] < 0) == ("regressed", True)


def test_no_difference_spends_the_budget_and_no_more(people: People) -> None:
    gate = played(people, worth(0.5, 0.5), policy={"rollouts": 130})
    assert (gate.verdict, gate.reason) == ("inconclusive", "budget")
    assert spent_by(gate).rollouts == 120
    assert len(gate.decisions) == 5
    needs = gate.decisions[-1]["needs"]
    assert needs["visible"] > 0.1


def test_too_many_errors_are_infrastructure_after_the_first_look(people: People) -> None:
    inner = worth(0.1, 0.9)

    def rule(harness: Harness, rollout: Rollout) -> float | None:
        return None if rollout.task.key.endswith(("1", "2", "3")) else inner(harness, rollout)

    gate = played(people, rule)
    assert (gate.verdict, gate.reason) == ("infrastructure", "coverage")
    assert len(gate.decisions) == 1
    assert "Without a score" in gate.sentence


def test_two_models_are_two_runs_of_one_look(people: People) -> None:
    other = make_endpoint(people.project, "http://127.0.0.1:9", name="other")
    before = make_harness(people.project, instructions="Act in JSON.\n")
    form = make_form(people.project, candidate=before, baseline=before, candidate_model=other)
    gate = start_gate(actor=people.editor, project=people.project, form=form)

    def rule(harness: Harness, rollout: Rollout) -> float | None:
        return float(rollout.run.model_id == other.pk)

    play(rule)
    gate.refresh_from_db()
    assert gate.verdict == "better"
    assert [asked.side for asked in gate.gate_runs.all()] == ["baseline", "candidate"]


def test_the_same_on_both_sides_runs_nothing(people: People) -> None:
    form = make_form(people.project)
    form = replace(form, candidate=form.baseline)
    gate = start_gate(actor=people.editor, project=people.project, form=form)
    assert (gate.verdict, gate.reason) == ("inconclusive", "same")
    assert not Job.objects.exists()


def test_a_required_criterion_is_a_rule(people: People) -> None:
    gate = make_gate(people, policy={"required": ["reward"]})
    move(Job.objects.get())
    job = Job.objects.get(kind="runs.execute")
    play_run(job, worth(0.1, 0.9))
    for row in Rollout.objects.filter(run__gate_run__gate=gate):
        value = 0.0 if row.task.key == "select-3" else 1.0
        VerdictRecord.objects.create(
            rollout=row, criterion="reward", name="Reward", state="scored", value=value, reason="x"
        )
    play(worth(0.1, 0.9))
    gate.refresh_from_db()
    assert (gate.verdict, gate.reason) == ("regressed", "required")
    assert "reward (failed" in gate.sentence


def test_a_criterion_can_be_the_metric(people: People) -> None:
    gate = make_gate(people, policy={"metric": "criterion:reward"})
    move(Job.objects.get())
    play_run(Job.objects.get(kind="runs.execute"), worth(0.5, 0.5))
    for row in Rollout.objects.filter(run__gate_run__gate=gate).select_related("harness"):
        VerdictRecord.objects.create(
            rollout=row,
            criterion="reward",
            name="Reward",
            state="scored",
            value=float(row.harness_id == gate.candidate_id),
            reason="x",
        )
    move(Job.objects.filter(kind="gates.advance", state=JobState.QUEUED).get())
    gate.refresh_from_db()
    assert (gate.verdict, gate.decisions[-1]["mean"]) == ("better", 1.0)


def test_money_is_looked_at_before_the_next_look(people: People) -> None:
    gate = played(people, worth(0.5, 0.5), policy={"usd": 0.06})
    assert (gate.verdict, gate.reason) == ("inconclusive", "budget")
    assert "would cost about $0.05; $0.05 of $0.06 are spent" in gate.sentence
    assert spent_by(gate).rollouts == 48


def test_a_cap_of_the_project_is_no_word_on_the_change(people: People) -> None:
    set_limits(
        actor=people.owner, project_id=people.project.pk, rollouts_per_day=20, usd_per_day=None
    )
    gate = played(people, worth(0.5, 0.5))
    assert (gate.verdict, gate.reason) == ("infrastructure", "failed")
    assert "may start 20 a day" in gate.sentence
    assert not Run.objects.exists()


def test_a_cap_that_comes_between_looks_ends_with_what_was_seen(people: People) -> None:
    set_limits(
        actor=people.owner, project_id=people.project.pk, rollouts_per_day=60, usd_per_day=None
    )
    gate = played(people, worth(0.5, 0.5))
    assert (gate.verdict, gate.reason) == ("inconclusive", "budget")
    assert "may start 60 a day" in gate.sentence
    assert spent_by(gate).rollouts == 48


def test_a_run_that_was_cancelled_is_infrastructure(people: People) -> None:
    gate = make_gate(people)
    move(Job.objects.get())
    run = Run.objects.get()
    cancel_run(actor=people.editor, run=run)
    play(worth(0.5, 0.5))
    gate.refresh_from_db()
    assert (gate.verdict, gate.reason) == ("infrastructure", "failed")
    assert f"Run {run.pk} cancelled" in gate.sentence


def test_cancelling_ends_the_gate_and_its_run_without_a_verdict(people: People) -> None:
    gate = make_gate(people)
    move(Job.objects.get())
    cancel_gate(actor=people.editor, gate=gate)
    play(worth(0.5, 0.5))
    gate.refresh_from_db()
    assert (gate.state, gate.verdict) == (GateState.CANCELLED, "")
    assert Run.objects.get().state == "cancelled"
    assert set(Rollout.objects.values_list("state", flat=True)) == {RolloutState.CANCELLED}
    with pytest.raises(GateEnded, match="has ended"):
        cancel_gate(actor=people.editor, gate=gate)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"split": "other"}, "split"),
        ({"split": "test"}, "split"),
        ({"tasks": ("nothing",)}, "tasks"),
        ({"n_tasks": 3}, "tasks"),
        ({"name": " "}, "name"),
        ({"source": {"url": "javascript:alert(1)"}}, "source.url"),
        ({"policy": Policy(required=("none",))}, "policy.required"),
        ({"policy": Policy(metric="criterion:none")}, "policy.metric"),
        ({"policy": Policy(rollouts=10)}, "policy.rollouts"),
    ],
)
def test_a_gate_that_cannot_decide_is_refused_with_its_field(
    people: People, change: dict[str, object], field: str
) -> None:
    form = replace(make_form(people.project), **change)  # type: ignore[arg-type]
    with pytest.raises(GateRefused) as refused:
        start_gate(actor=people.editor, project=people.project, form=form)
    assert refused.value.field == field
    assert not Gate.objects.exists()


class Killed(BaseException):
    """As SIGKILL: nothing in the product catches it."""


@pytest.mark.django_db(transaction=True)
def test_kills_change_nothing(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = played(people, worth(0.4, 0.6))
    hold, draw, kills = machine._hold, random.Random(5), 0

    def shaky(*args: object) -> None:
        nonlocal kills
        if kills < 12 and draw.random() < 0.5:
            kills += 1
            raise Killed
        hold(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(machine, "_hold", shaky)
    shaken = make_gate(people)
    Gate.objects.filter(pk=shaken.pk).update(seed=calm.seed)
    for _ in range(200):
        Job.objects.filter(state=JobState.RUNNING).update(state=JobState.QUEUED)
        job = Job.objects.filter(state=JobState.QUEUED).order_by("id").first()
        if job is None:
            break
        if job.kind == "runs.execute":
            play_run(job, worth(0.4, 0.6), only=lambda i: bool(i % 2) or draw.random() < 0.5)
            continue
        try:
            run_attempt(job.pk)
        except Killed:
            continue
    shaken.refresh_from_db()
    assert kills > 3
    assert shaken.state == GateState.DECIDED
    assert (shaken.verdict, shaken.decisions) == (calm.verdict, calm.decisions)
    assert spent_by(shaken).rollouts == spent_by(calm).rollouts
    assert len(told(shaken, "look")) == len(told(calm, "look"))
    assert len(told(shaken, "gate.ended")) == 1
