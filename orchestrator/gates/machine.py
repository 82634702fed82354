"""The course of a gate: look after look, until one decides or nothing is left to spend.

`advance` may be called at any time and by anybody: it finds the newest look, waits for its runs,
decides on all pairs that exist, and asks for the next. A look's runs carry keys made of the gate
and the look, and every change holds the fence of the job, so that nothing is asked for twice.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from optimizer.errors import StatisticsDomain
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import Task
from orchestrator.events.services import Fence, NewEvent, hold_fence
from orchestrator.gates import queries
from orchestrator.gates.deciding import Decision, Reason, Verdict, decide
from orchestrator.gates.models import Gate, GateRun, GateState, Side
from orchestrator.gates.telling import cancel_runs, end_decided, tell
from orchestrator.runs import limits
from orchestrator.runs.limits import LimitReached
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run


def advance(*, gate_id: int, fence: Fence) -> None:
    """Moves the gate as far as it goes without waiting. Raises LeaseLost, Cancelled."""
    gate = queries.full(gate_id)
    if gate.state == GateState.CANCELLED:
        cancel_runs(gate)
    if gate.has_ended:
        return
    _mark_started(gate, fence)
    look = gate.gate_runs.aggregate(last=Max("look"))["last"] or 0
    if look:
        runs = [asked.run for asked in gate.gate_runs.filter(look=look).select_related("run")]
        if not all(run.has_ended for run in runs):
            for run in runs:
                if not run.has_ended:
                    start_run(run=run)
            return
        if _is_lost(gate, runs, fence) or _is_decided(gate, look, fence):
            return
    try:
        _ask(gate, look + 1, fence)
    except LimitReached as exc:
        _end(gate, Verdict.INFRASTRUCTURE, Reason.FAILED, str(exc), fence)


def _mark_started(gate: Gate, fence: Fence) -> None:
    if gate.state != GateState.QUEUED:
        return
    with transaction.atomic():
        _hold(gate, fence)
        started = Gate.objects.filter(pk=gate.pk, state=GateState.QUEUED).update(
            state=GateState.RUNNING, started_at=timezone.now()
        )
        if started:
            tell(gate, NewEvent("gate.started", {}), fence)


def _is_lost(gate: Gate, runs: list[Run], fence: Fence) -> bool:
    """Whether a run came to nothing: what it would have shown is not known, so nothing is said."""
    lost = [run for run in runs if run.state in (RunState.FAILED, RunState.CANCELLED)]
    if not lost:
        return False
    run = lost[0]
    why = f": {run.error}" if run.error else ""
    _end(
        gate,
        Verdict.INFRASTRUCTURE,
        Reason.FAILED,
        f"Run {run.pk} {run.get_state_display()}{why}",
        fence,
    )
    return True


def _is_decided(gate: Gate, look: int, fence: Fence) -> bool:
    """The decision of this look is kept, whatever it is."""
    seen, plan = queries.seen_at(gate, look), queries.plan_of(gate)
    try:
        decision = decide(
            queries.policy_of(gate),
            plan,
            look,
            seen.pairs,
            required=seen.required,
            no_more=_why_no_more(gate, look),
        )
    except StatisticsDomain as exc:
        text = f"The metric {queries.policy_of(gate).metric} cannot be compared: {exc}."
        _end(gate, Verdict.INFRASTRUCTURE, Reason.FAILED, text, fence)
        return True
    with transaction.atomic():
        _hold(gate, fence)
        _keep(gate, decision, fence)
        if decision.verdict is None or decision.reason is None:
            return False
        end_decided(
            gate=gate,
            verdict=decision.verdict,
            reason=decision.reason,
            sentence=decision.sentence,
            fence=fence,
        )
    return True


def _keep(gate: Gate, decision: Decision, fence: Fence) -> None:
    gate.refresh_from_db(fields=["decisions"])
    if len(gate.decisions) >= decision.look:
        return
    gate.decisions = [*gate.decisions, decision.to_json()]
    gate.save(update_fields=["decisions"])
    tell(gate, NewEvent("look", decision.to_json()), fence)


def _why_no_more(gate: Gate, look: int) -> str:
    """Why the next look cannot be had: its price, or a cap of the project; empty where it can."""
    policy, plan = queries.policy_of(gate), queries.plan_of(gate)
    if look >= len(plan.looks):
        return ""
    more = 2 * plan.tasks * (plan.replicates[look] - plan.replicates[look - 1])
    try:
        with transaction.atomic():
            limits.check(gate.project_id, more)
    except LimitReached as exc:
        return str(exc)
    if policy.usd is None:
        return ""
    spent = queries.spent_by(gate)
    expected = spent.usd / max(1, spent.rollouts) * more
    if spent.usd + expected <= policy.usd:
        return ""
    return (
        f"The next {more:,} rollouts would cost about ${expected:,.2f}; ${spent.usd:,.2f} of "
        f"${policy.usd:,.2f} are spent."
    )


def _ask(gate: Gate, look: int, fence: Fence) -> None:
    """The runs of a look, with all that it needs beyond the look before."""
    plan = queries.plan_of(gate)
    before = plan.replicates[look - 2] if look > 1 else 0
    replicates = range(before, plan.replicates[look - 1])
    found = Task.objects.filter(version_id=gate.environment_version_id, key__in=gate.tasks)
    by_key = {task.key: task for task in found}
    with transaction.atomic():
        _hold(gate, fence)
        # It may have been cancelled since its state was read; nobody would end the runs.
        if not Gate.objects.filter(pk=gate.pk, state=GateState.RUNNING).exists():
            return
        for side, model in _sides(gate):
            harnesses = [gate.baseline_id, gate.candidate_id]
            if side != Side.BOTH:
                harnesses = [gate.baseline_id if side == Side.BASELINE else gate.candidate_id]
            run = create_run(
                key=f"gate-{gate.pk}-look-{look}-{side}",
                # Pair by pair, so that a run that stops half way leaves pairs.
                plan=[
                    PlannedRollout(harness, by_key[task], replicate)
                    for replicate in replicates
                    for task in gate.tasks
                    for harness in harnesses
                ],
                spec=RunSpec(
                    project=gate.project,
                    purpose=Purpose.CI,
                    label=f"{gate.name}: look {look}"[:120],
                    environment_version=gate.environment_version,
                    rubric_version=gate.rubric_version,
                    model=model,
                    # The same for both sides: a pair samples with the same seed.
                    seed=gate.seed,
                    concurrency=gate.concurrency,
                ),
            )
            _, is_new = GateRun.objects.get_or_create(gate=gate, run=run, look=look, side=side)
            if is_new:
                event = NewEvent("run", {"id": run.pk, "look": look, "side": side})
                tell(gate, event, fence)
            start_run(run=run)


def _sides(gate: Gate) -> list[tuple[Side, ModelEndpoint]]:
    if gate.candidate_model_id == gate.baseline_model_id:
        return [(Side.BOTH, gate.candidate_model)]
    return [(Side.BASELINE, gate.baseline_model), (Side.CANDIDATE, gate.candidate_model)]


def _hold(gate: Gate, fence: Fence) -> None:
    """Needs a transaction: whoever else moves the gate waits for its end. Raises LeaseLost."""
    hold_fence(fence)
    Gate.objects.select_for_update().only("pk").get(pk=gate.pk)


def _end(gate: Gate, verdict: Verdict, reason: Reason, sentence: str, fence: Fence) -> None:
    with transaction.atomic():
        _hold(gate, fence)
        end_decided(gate=gate, verdict=verdict, reason=reason, sentence=sentence, fence=fence)
