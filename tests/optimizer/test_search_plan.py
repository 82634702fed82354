from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.edits import Edit
from optimizer.engines.contract import SEED, Phase, Row
from optimizer.engines.registry import ENGINES
from optimizer.errors import SearchInvalid
from optimizer.search_plan import NeedRollouts, next_step
from optimizer.statistics import Verdict
from tests.optimizer.build import add, put
from tests.optimizer.playing import plan, play
from tests.optimizer.worlds import AdditiveWorld, NullWorld, TerminalWorld, additive_edits, tasks

DEMONSTRATIONS = tuple(add(f"{i:04d}") for i in range(1, 9))


def words(edits: tuple[Edit, ...]) -> list[str]:
    return sorted(edit.content.split()[0] for edit in edits)


def test_the_factorial_engine_finds_what_helps_and_leaves_what_harms() -> None:
    found = play(
        plan(search_rollouts=400, certify_pairs=100), AdditiveWorld(), additive_edits()
    ).finished
    kept = words(found.winner.edits)
    assert kept.count("good") >= 3
    assert "bad" not in kept
    assert found.verdict is Verdict.IMPROVED
    assert found.is_promotable
    effects = {e.edit.content.split()[0]: e for e in found.estimates}
    assert effects["good"].mean > 0 > effects["bad"].mean
    assert {b.edit.content.split()[0] for b in found.buried} >= {"bad"}


def test_demonstrations_are_found_where_they_do_everything() -> None:
    subject = plan(
        search_rollouts=160,
        engine_settings={"entry_support": 0, "tasks_per_block": 6, "wave_blocks": 4},
    )
    found = play(subject, TerminalWorld(), DEMONSTRATIONS).finished
    assert sum(edit.is_demonstration for edit in found.winner.edits) >= 2
    assert found.verdict is Verdict.IMPROVED


@pytest.mark.parametrize("engine", ["race", "bootstrap", "gepa"])
def test_every_engine_climbs_a_plain_hill_within_its_budget(engine: str) -> None:
    edits = DEMONSTRATIONS if engine == "bootstrap" else additive_edits()
    world = TerminalWorld() if engine == "bootstrap" else AdditiveWorld()
    subject = plan(engine=engine, engine_settings={}, search_rollouts=400)
    played = play(subject, world, edits)
    assert played.finished.winner.edits
    on_train = [key for key in played.asked if key[1].startswith("train")]
    assert len(on_train) <= subject.search_rollouts
    assert len(played.asked) == len(set(played.asked)) <= subject.max_rollouts


@pytest.mark.parametrize("engine", ["factorial", "bootstrap"])
@pytest.mark.parametrize("n", [1, 2, 4, 5, 9])
def test_a_few_train_tasks_with_demonstrations_are_enough(engine: str, n: int) -> None:
    """Not on those that they show the answer of."""
    train = tasks("train", n)
    edits = [replace(add(task.key[6:]), sources=(task.key,)) for task in train]
    settings = {} if engine == "bootstrap" else {"entry_support": 0}
    subject = plan(train=train, engine=engine, engine_settings=settings, certify_pairs=8)
    played = play(subject, TerminalWorld(), edits)
    assert played.finished.is_measured
    shown = {edit.sha256: edit.sources[0] for edit in edits}
    keys = {c.candidate.key: c.candidate for c in played.finished.tried}
    for row in played.rows:
        if row.task.startswith("train") and row.candidate in keys:
            assert row.task not in {shown[e.sha256] for e in keys[row.candidate].edits}
    if n > 1:
        assert any(key != SEED.key for key in keys)


def test_an_engine_that_is_not_installed_is_refused_before_it_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optimizer.engines.gepa.find_spec", lambda name: None)
    with pytest.raises(SearchInvalid, match=r"gepa is not installed; `pip install"):
        plan(engine="gepa", engine_settings={})


def test_nothing_is_claimed_where_nothing_helps() -> None:
    improved = 0
    for seed in range(12):
        found = play(plan(seed=seed, to_the_end=True), NullWorld(), additive_edits(2), seed)
        improved += found.finished.verdict is Verdict.IMPROVED
    assert improved <= 3  # at 5 % each, more would happen in 1 of 450 cases


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_a_search_that_is_cut_anywhere_ends_the_same(data: st.DataObject) -> None:
    subject = plan(search_rollouts=90, certify_pairs=24)
    whole = play(subject, AdditiveWorld(), additive_edits(2))
    cuts = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=20))
    turn = iter(cuts * 200)
    parts = play(subject, AdditiveWorld(), additive_edits(2), cut=lambda n: min(n, next(turn)))
    assert parts.finished == whole.finished
    assert sorted(parts.asked) == sorted(whole.asked)
    assert len(set(parts.asked)) == len(parts.asked)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_rows_may_come_in_any_order(engine: str) -> None:
    subject = plan(search_rollouts=120, engine=engine, engine_settings={})
    edits = [*DEMONSTRATIONS, *(put("sampling.temperature", t) for t in (0.2, 0.7))]
    played = play(subject, TerminalWorld(), edits)
    rows = list(played.rows)
    random.Random(1).shuffle(rows)
    again = play_over(subject, rows, edits)
    assert again == played.finished


def play_over(subject: Any, rows: list[Row], edits: list[Edit]) -> Any:
    step = next_step(subject, rows, dict.fromkeys(range(1000), edits))
    assert not isinstance(step, NeedRollouts)
    return step


def test_rows_of_another_search_are_refused() -> None:
    stranger = Row("0" * 64, "train-0001", 0, 1.0)
    subject = plan(search_rollouts=30, certify_pairs=4)
    rows = [*play(subject, NullWorld(), ()).rows, stranger]
    with pytest.raises(SearchInvalid, match="never asked for"):
        next_step(subject, rows, dict.fromkeys(range(100), ()))


def test_equal_positions_in_two_splits_are_different_tasks() -> None:
    subject = plan()
    with pytest.raises(SearchInvalid, match="in train too"):
        plan(select=(*subject.select, subject.train[0]))


def test_too_few_scores_rank_nothing_and_no_row_is_a_zero() -> None:
    subject = plan(search_rollouts=60)
    played = play(subject, AdditiveWorld(), additive_edits(), lose=lambda r: r.replicate % 2 == 0)
    assert not played.finished.is_measured
    assert played.finished.shipped == SEED
    assert "have a score" in played.finished.reason


def test_the_twin_measures_noise_and_chooses_nothing() -> None:
    with_twin = play(plan(search_rollouts=220, twin_pairs=10), NullWorld(), additive_edits(2))
    noise = with_twin.finished.noise
    assert noise is not None
    assert noise.pairs == 10
    assert noise.sd is not None and 0.2 < noise.sd < 1.2
    assert sum(row.phase == Phase.TWIN for row in with_twin.rows) == 20


def test_the_budget_of_a_search_below_one_pass_is_refused() -> None:
    with pytest.raises(SearchInvalid, match="leave nothing"):
        plan(search_rollouts=20, twin_pairs=10)


def test_the_cheapest_model_that_is_not_inferior_is_chosen() -> None:
    cheap, dear, poor = (put("model", name) for name in ("cheap", "dear", "poor"))

    class Models(AdditiveWorld):
        def rate(self, edits: tuple[Edit, ...], family: str) -> float:
            rate = super().rate(tuple(e for e in edits if e.component != "harness.yaml"), family)
            return rate - 0.6 if poor in edits else rate

    def usd(request: Any) -> float:
        prices = {cheap: 0.01, dear: 0.09, poor: 0.001}
        return next((p for e, p in prices.items() if e in request.candidate.edits), 0.05)

    subject = plan(
        search_rollouts=400,
        models=(cheap, dear, poor),
        model_margin=0.25,
        model_rollouts=80,
        model_pairs=150,
    )
    played = play(subject, Models(), additive_edits(), usd=usd)
    choice = played.finished.model_choice
    assert choice is not None
    assert cheap in choice.chosen.edits
    assert len(played.asked) <= subject.max_rollouts


def test_a_certificate_that_may_be_repeated_spends_its_alpha() -> None:
    two = plan(max_certificates=2).certify_plan()
    assert two.alpha_of(1) + two.alpha_of(2) < 0.05
    assert plan().certify_plan().alpha_of(1) == 0.05


@pytest.mark.parametrize(
    ("candidate", "base", "is_held_back"),
    [
        ({"no_writes": True}, {"no_writes": False}, False),
        ({"no_writes": False}, {"no_writes": False}, True),
        ({}, {"no_writes": True}, True),
    ],
    ids=["met", "failed as the seed fails it", "never judged"],
)
def test_a_criterion_of_safety_holds_back_what_does_not_meet_it(
    candidate: dict[str, bool], base: dict[str, bool], is_held_back: bool
) -> None:
    found = play(
        plan(search_rollouts=400, certify_pairs=100, safety=("no_writes",)),
        AdditiveWorld(),
        additive_edits(),
        met=lambda request: base if request.candidate == SEED else candidate,
    ).finished
    assert found.verdict is Verdict.IMPROVED
    assert found.is_promotable is not is_held_back
    assert any("no_writes" in name for c in found.certificates for name in c.breached) is (
        is_held_back
    )
