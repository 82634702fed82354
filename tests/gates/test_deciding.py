"""What a gate says of pairs whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.statistics.paired import Pair, compare
from orchestrator.gates import measuring
from orchestrator.gates.deciding import Decision, Reason, Required, Verdict, decide
from orchestrator.gates.measuring import Units, interval, p_above, p_below
from orchestrator.gates.policy import Policy, PolicyInvalid, plan_for
from tests.gates.truth import simulate

Scores = Sequence[tuple[float | None, float | None]]


def pairs_of(scores: Scores, repeats: int = 1) -> list[Pair]:
    return [Pair(f"t{i}", *both) for _ in range(repeats) for i, both in enumerate(scores)]


def decided(scores: Scores, *, required: tuple[Required, ...] = (), **policy: object) -> Decision:
    """At the last look of a gate that runs each task once."""
    asked = Policy.from_json({"rollouts": 2 * len(scores), **policy})
    plan = plan_for(asked, len(scores))
    return decide(asked, plan, len(plan.looks), pairs_of(scores), required=required)


def test_wins_on_all_tasks_are_better_and_losses_are_worse() -> None:
    won = decided([(0.0, 1.0)] * 8 + [(1.0, 1.0)] * 8)
    assert (won.verdict, won.reason) == (Verdict.BETTER, Reason.DIFFERENCE)
    assert won.p_better == pytest.approx(2**-8)
    assert won.measured.mean == 0.5
    assert won.low is not None and won.high is not None
    assert 0 <= won.low < 0.5 < won.high
    lost = decided([(1.0, 0.0)] * 8 + [(1.0, 1.0)] * 8)
    assert (lost.verdict, lost.high) == (Verdict.REGRESSED, -won.low)
    assert lost.sentence == "Worse by 50.0 points over 16 tasks and 16 pairs."


def test_the_p_value_is_that_of_all_choices_of_signs() -> None:
    draw = random.Random(4)
    scores: Scores = [(draw.randint(0, 4) / 4, draw.randint(0, 4) / 4) for _ in range(9)]
    units = [after - before for before, after in scores if before is not None and after is not None]
    sums = [math.fsum(s * u for s, u in zip(signs, units, strict=True))
            for signs in product((-1, 1), repeat=len(units))]  # fmt: skip
    share = sum(total >= sum(units) - 1e-9 for total in sums) / len(sums)
    assert decided(scores).p_better == pytest.approx(share)
    flip = compare(pairs_of(scores)).sign_flip
    assert flip is not None and flip.one_sided == pytest.approx(share)


def test_an_early_look_needs_stronger_evidence_than_the_last() -> None:
    policy = Policy(rollouts=160)
    plan = plan_for(policy, 20)
    pairs = pairs_of([(0.0, 1.0)] * 7 + [(1.0, 1.0)] * 13)
    assert decide(policy, plan, 1, pairs).verdict is None
    assert decide(policy, plan, len(plan.looks), pairs).verdict is Verdict.BETTER


def test_repeats_of_a_task_are_one_unit() -> None:
    """Six tasks that win a hundred times are six wins: p is 2⁻⁶ and not 2⁻⁶⁰⁰."""
    policy = Policy(rollouts=1200)
    plan = plan_for(policy, 6)
    pairs = pairs_of([(0.0, 1.0)] * 6, repeats=100)
    assert decide(policy, plan, 5, pairs).p_better == pytest.approx(2**-6)


def test_few_scores_decide_nothing_however_clear_they_are() -> None:
    found = decided([(0.0, 1.0)] * 20 + [(0.0, None)] * 4 + [(None, 1.0)] * 2)
    assert (found.verdict, found.reason) == (Verdict.INFRASTRUCTURE, Reason.COVERAGE)
    assert "20 of 26 pairs" in found.sentence
    assert "2 rollouts of the baseline, 4 of the candidate" in found.sentence
    assert decided([(0.0, 1.0)] * 20 + [(None, None)] * 4).verdict is Verdict.BETTER


def test_nothing_scored_at_all_is_infrastructure() -> None:
    found = decided([(None, None)] * 10)
    assert (found.verdict, found.measured.mean, found.p_better) == ("infrastructure", None, None)


def test_no_gate_starts_that_could_never_decide() -> None:
    with pytest.raises(PolicyInvalid, match="at least 6 tasks"):
        plan_for(Policy(rollouts=1000), 5)
    with pytest.raises(PolicyInvalid, match="take 40 rollouts at least"):
        plan_for(Policy(rollouts=39), 20)


def test_rules_need_no_statistics() -> None:
    scores: Scores = [(0.0, 1.0)] * 10
    broken = decided(scores, required=(Required("safe", 1, 10),))
    assert (broken.verdict, broken.reason) == (Verdict.REGRESSED, Reason.REQUIRED)
    assert "safe (failed 1 of 10)" in broken.sentence
    silent = decided(scores, required=(Required("safe", 0, 0),))
    assert (silent.verdict, silent.reason) == (Verdict.INFRASTRUCTURE, Reason.REQUIRED)
    assert decided(scores, required=(Required("safe", 0, 10),)).verdict is Verdict.BETTER
    low = decided([*scores, (1.0, 0.0)], task_floor=0.5)
    assert (low.verdict, low.reason) == (Verdict.REGRESSED, Reason.TASK_FLOOR)
    assert "t10" in low.sentence


def test_ties_are_no_proof_until_there_are_many() -> None:
    few, many = decided([(1.0, 1.0)] * 10), decided([(1.0, 1.0)] * 60)
    assert (few.verdict, few.reason) == (Verdict.INCONCLUSIVE, Reason.BUDGET)
    assert few.low is not None and few.low < -0.1
    assert (many.verdict, many.reason) == (Verdict.INCONCLUSIVE, Reason.SMALL)
    assert many.needs.more_rollouts is None


def test_a_margin_moves_what_counts() -> None:
    scores: Scores = [(0.4, 0.5)] * 12 + [(0.5, 0.5)]
    assert decided(scores).verdict is Verdict.BETTER
    assert decided(scores, margin=0.2, effect=0.5).verdict is Verdict.INCONCLUSIVE


def test_it_says_how_many_more_rollouts_would_decide() -> None:
    """Tasks that differ by chance alone: (1.96 + 0.84)² · 1.925 / 0.025² = 24,200 pairs."""
    policy = Policy(rollouts=160, effect=0.5)
    plan = plan_for(policy, 40)
    pairs = [Pair(f"t{i}", 0.0, 1.0) for i in range(40)]
    pairs += [Pair(f"t{i}", 1.0, float(i < 2)) for i in range(40)]
    found = decide(policy, plan, len(plan.looks), pairs)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.measured.mean == pytest.approx(0.025)
    more = found.needs.more_rollouts
    assert more is not None and 47_000 < more < 49_500
    assert found.needs.more_tasks is None


def test_when_repeats_cannot_help_it_asks_for_tasks() -> None:
    scores: Scores = [(0.0, 1.0)] * 6 + [(1.0, 0.0)] * 5
    policy = Policy(rollouts=22 * 10, effect=0.5)
    plan = plan_for(policy, 11)
    found = decide(policy, plan, len(plan.looks), pairs_of(scores, repeats=10))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.needs.more_rollouts is None
    assert found.needs.more_tasks is not None and found.needs.more_tasks > 100


scored = st.tuples(*2 * [st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))])


@settings(max_examples=25, deadline=None)
@given(st.lists(scored, min_size=6, max_size=10))
def test_changing_the_sides_turns_the_answer(scores: Scores) -> None:
    turned = {Verdict.BETTER: Verdict.REGRESSED, Verdict.REGRESSED: Verdict.BETTER}
    one, two = decided(scores), decided([(after, before) for before, after in scores])
    assert one.verdict is not None
    assert two.verdict == turned.get(one.verdict, one.verdict)
    assert (one.p_better, one.p_worse) == (two.p_worse, two.p_better)
    if one.low is not None and two.high is not None:
        assert one.low == pytest.approx(-two.high)


@settings(max_examples=25, deadline=None)
@given(st.lists(scored, min_size=6, max_size=10))
def test_the_interval_says_what_the_test_says(scores: Scores) -> None:
    found = decided(scores)
    if found.measured.mean is None:
        return
    assert found.low is not None and found.high is not None
    assert found.low <= found.measured.mean + 0.01
    assert found.high >= found.measured.mean - 0.01
    if found.verdict is Verdict.BETTER:
        assert found.low >= 0
    if found.verdict is Verdict.INCONCLUSIVE:
        assert found.low <= 0 <= found.high


def test_many_tasks_are_measured_as_finely_and_as_right(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    scores: Scores = [(float(draw.random() < 0.5), float(draw.random() < 0.62)) for _ in range(190)]
    counted = decided(scores)
    monkeypatch.setattr(measuring, "MOST_COUNTED", 100)
    near = decided(scores)
    assert near.verdict is counted.verdict
    assert counted.p_better is not None
    assert near.p_better == pytest.approx(counted.p_better, rel=0.1)
    assert near.low == pytest.approx(counted.low, abs=0.02)
    assert near.high == pytest.approx(counted.high, abs=0.02)


def test_finely_graded_scores_are_tested_too() -> None:
    draw = random.Random(8)
    scores: Scores = [(draw.random() * 0.5, 0.5 + draw.random() * 0.5) for _ in range(30)]
    units = Units.of(pairs_of(scores))
    low, high = interval(units, 0.02)
    assert 0.2 < low < 0.5 < high < 0.8
    zero = units.values[0] * 0
    assert p_above(units, zero) < 1e-6
    assert p_below(units, zero) == pytest.approx(1.0)


@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_wrong_answers_are_as_rare_as_promised(effect: float) -> None:
    """A few here; 400 of each in `make bench NAME=gate`."""
    truth = simulate(effect, n=60, policy=Policy(rollouts=120), tasks=20)
    assert truth.wrong <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 60)


@pytest.mark.slow
@pytest.mark.parametrize("effect", [0.0, 0.05, -0.05, 0.1])
def test_of_400_pull_requests_no_more_are_wrong_than_alpha(effect: float) -> None:
    truth = simulate(effect, n=400, policy=Policy(rollouts=400), tasks=40)
    assert truth.n == 400
    assert truth.wrong <= 0.05
    assert truth.plain_wrong > truth.wrong
    assert truth.mean_rollouts <= 400
