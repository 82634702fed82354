from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from optimizer.errors import SearchInvalid
from optimizer.search import Phase, Row, Run, SearchConfig, candidate_key, next_action
from optimizer.statistics import Verdict
from tests.optimizer.build import add
from tests.optimizer.worlds import (
    FAMILIES,
    AdditiveWorld,
    NullWorld,
    TerminalWorld,
    additive_edits,
    config,
    result,
    simulate,
    tasks,
)


def demonstrations_in(subject: SearchConfig, bundle: tuple[int, ...]) -> int:
    return sum(subject.edits[i].is_demonstration for i in bundle)


def test_it_finds_demonstrations_without_rules_and_certifies_them() -> None:
    numbers: Counter[int] = Counter()
    for seed in range(12):
        subject = config(seed=seed)
        found, rows = simulate(subject, TerminalWorld(), seed)
        assert found.verdict is Verdict.IMPROVED
        assert found.is_promotable
        assert found.shipped == found.bundle
        assert not any(subject.edits[i].group for i in found.bundle)
        numbers[demonstrations_in(subject, found.bundle)] += 1
        assert len(rows) <= subject.max_rollouts
    assert numbers[3] + numbers[4] >= 11


def test_where_nothing_helps_nothing_is_claimed() -> None:
    verdicts = Counter(
        simulate(config(seed=seed), NullWorld(), seed)[0].verdict for seed in range(20)
    )
    assert verdicts[Verdict.IMPROVED] <= 1


def test_independent_edits_are_told_apart() -> None:
    subject = config(edits=additive_edits())
    good = bad = 0
    for seed in range(6):
        found, _ = simulate(replace(subject, seed=seed), AdditiveWorld(), seed)
        kept = [subject.edits[i].content.split()[0] for i in found.bundle]
        good, bad = good + kept.count("good"), bad + kept.count("bad")
    assert good >= 3 * bad


def test_the_effects_say_what_happened() -> None:
    subject = config(seed=3)
    found, _ = simulate(subject, TerminalWorld(), 3)
    for effect, edit in zip(found.effects, subject.edits, strict=True):
        if edit.is_demonstration:
            assert effect.mean > 0.15
            assert effect.probability_positive > 0.75
        else:
            assert effect.mean < 0
        assert effect.n_with > 0
        assert effect.n_without > 0


def test_an_interrupted_search_ends_as_an_uninterrupted_one() -> None:
    subject, world = config(seed=5), TerminalWorld()
    whole, rows = simulate(subject, world, 5)
    families = {task.key: task.stratum for task in (*subject.train, *subject.select)}
    draw = random.Random(1)
    done: list[Row] = []
    asked: Counter[tuple[str, str, int]] = Counter()
    while isinstance(action := next_action(subject, done), Run):
        # Some of what was asked for is done, in any order; then the process is killed.
        some = draw.sample(action.requests, draw.randint(1, len(action.requests)))
        asked.update(request.key for request in some)
        done += [result(subject, world, 5, r, families[r.task]) for r in some]
        draw.shuffle(done)
    assert action == whole
    assert set(asked.values()) == {1}
    assert sorted(done, key=repr) == sorted(rows, key=repr)


def test_no_rollout_is_asked_for_twice_and_pairs_are_fresh() -> None:
    subject = config(seed=2, max_certificates=3)
    seen: set[tuple[str, str, int]] = set()
    rows: list[Row] = []
    while isinstance(action := next_action(subject, rows), Run):
        for request in action.requests:
            assert request.key not in seen
            seen.add(request.key)
            assert request.task.startswith("select" if request.phase is Phase.CERTIFY else "train")
            rows.append(Row(*request.key, 0.5))
    assert [c.test.alpha for c in action.certificates] == pytest.approx([0.0304], abs=1e-4)


def test_both_sides_of_a_pair_share_task_replicate_and_seed() -> None:
    subject = config(seed=1)
    rows: list[Row] = []
    while isinstance(action := next_action(subject, rows), Run):
        if action.progress.phase is Phase.CERTIFY:
            sides = Counter((r.task, r.replicate, r.seed) for r in action.requests)
            assert set(sides.values()) == {2}
            break
        rows += [Row(*request.key, float(len(request.bundle) > 1)) for request in action.requests]


def test_tasks_behind_a_demonstration_are_not_used() -> None:
    subject = config(edits=(add("0001"), add("0002")))
    subject = replace(
        subject,
        edits=tuple(
            replace(e, sources=(f"train-{i:04d}",)) for i, e in enumerate(subject.edits, 1)
        ),
    )
    _, rows = simulate(subject, TerminalWorld(), 0)
    assert not {"train-0001", "train-0002"} & {row.task for row in rows}


def test_blocks_cover_the_families_evenly() -> None:
    subject = config(tasks_per_block=5)
    action = next_action(subject, [])
    assert isinstance(action, Run)
    families = {task.key: task.stratum for task in subject.train}
    for i in range(0, len(action.requests), 5):
        block = action.requests[i : i + 5]
        assert {families[request.task] for request in block} == set(FAMILIES)
        assert len({request.candidate for request in block}) == 1


def test_errors_are_left_out_and_do_not_decide() -> None:
    draw = random.Random(4)
    lost = simulate(config(seed=4), TerminalWorld(), 4, lose=lambda r: draw.random() < 0.04)
    assert lost[0].verdict is Verdict.IMPROVED
    assert any(row.score is None for row in lost[1])


def test_below_the_coverage_floor_nothing_is_ranked() -> None:
    found, _ = simulate(config(), TerminalWorld(), 0, lose=lambda request: True)
    assert (found.verdict, found.bundle) == (Verdict.INDECISIVE, ())
    assert "0 of 72 rollouts of the screen have a score" in found.reason


def test_a_broken_base_on_select_gives_no_claim() -> None:
    seed_key = candidate_key([])
    found, _ = simulate(
        config(),
        TerminalWorld(),
        0,
        lose=lambda r: r.phase is Phase.CERTIFY and r.candidate == seed_key,
    )
    assert found.verdict is Verdict.INDECISIVE
    assert not found.is_promotable
    assert "have two scores" in found.reason


def test_a_gain_that_hurts_one_family_is_not_promoted() -> None:
    class Trade:
        def rate(self, edits: Any, family: str) -> float:
            if family == "sums":
                return 0.0 if edits else 1.0
            return 1.0 if edits else 0.0

    found, _ = simulate(config(certify_batch_pairs=30), Trade(), 0)
    assert found.verdict is Verdict.IMPROVED
    assert not found.is_promotable
    assert found.shipped == ()
    assert found.certificates[0].breached == ("tasks: sums",)
    assert "worse in tasks: sums" in found.reason


def test_if_everything_hurts_the_seed_stays() -> None:
    class Poison:
        def rate(self, edits: Any, family: str) -> float:
            return 0.1 if edits else 0.9

    found, rows = simulate(config(), Poison(), 0)
    assert found.verdict is not Verdict.IMPROVED
    assert found.shipped == ()
    assert len(rows) <= 72 + 48 + 24


def test_rows_of_another_search_are_refused() -> None:
    subject = config()
    with pytest.raises(SearchInvalid, match="never asked for"):
        next_action(subject, [Row("x", "train-0001", 0, 1.0)])
    action = next_action(subject, [])
    assert isinstance(action, Run)
    row = Row(*action.requests[0].key, 1.0)
    with pytest.raises(SearchInvalid, match="two rows"):
        next_action(subject, [row, row])
    with pytest.raises(SearchInvalid, match="another configuration or seed"):
        next_action(replace(subject, seed=99), [row])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edits": ()}, "edits: a search needs at least one"),
        ({"edits": (add("a"), add("a"))}, "given twice"),
        ({"blocks": 0}, "blocks: accepts at least 1"),
        ({"certify_max_pairs": 0}, "certify_max_pairs: accepts at least 1"),
        ({"alpha": 1.5}, "alpha: accepts"),
        ({"select": tasks("train", 3)}, "a task is in train too"),
        ({"train": ()}, "each needs a task"),
    ],
)
def test_a_search_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchInvalid, match=message):
        config(**changes)


def test_progress_counts_what_is_done() -> None:
    subject = config()
    action = next_action(subject, [])
    assert isinstance(action, Run)
    assert (action.progress.phase, action.progress.done, action.progress.planned) == (
        Phase.SCREEN,
        0,
        72,
    )
    rows = [Row(*request.key, 0.0) for request in action.requests[:10]]
    action = next_action(subject, rows)
    assert isinstance(action, Run)
    assert action.progress.done == 10


@pytest.mark.slow
def test_error_rate_and_power_over_many_searches() -> None:
    wrong = sum(
        simulate(config(seed=s), NullWorld(), s)[0].verdict is Verdict.IMPROVED for s in range(200)
    )
    right = sum(
        simulate(config(seed=s), TerminalWorld(), s)[0].verdict is Verdict.IMPROVED
        for s in range(200)
    )
    assert wrong <= 10
    assert right >= 195
