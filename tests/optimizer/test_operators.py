from __future__ import annotations

from optimizer.edits import apply_edits, conflict_groups
from optimizer.operators import Trace, from_references, from_successes, instruction_pool
from tests.optimizer.build import harness


def trace(task: str, stratum: str = "lines", size: int = 10, **changes: object) -> Trace:
    messages = (
        {"role": "user", "content": f"{task}?"},
        {"role": "assistant", "content": "x" * size},
    )
    return Trace(**({"task": task, "messages": messages, "stratum": stratum} | changes))  # type: ignore[arg-type]


def sources(edits: list) -> list[str]:  # type: ignore[type-arg]
    return [edit.sources[0] for edit in edits]


def test_references_are_spread_over_strata_shortest_first() -> None:
    traces = [
        trace("a-long", "a", 90),
        trace("a-short", "a", 5),
        trace("a-mid", "a", 50),
        trace("b-only", "b", 70),
    ]
    found = sources(from_references(traces, count=3, seed=0))
    assert sorted(found[:2]) == ["a-short", "b-only"]
    assert found[2] == "a-mid"


def test_the_choice_depends_on_the_seed_alone() -> None:
    traces = [trace(f"t{i}", f"s{i % 3}") for i in range(30)]
    first = from_references(traces, count=8, seed=1)
    assert first == from_references(traces[::-1], count=8, seed=1)
    assert first != from_references(traces, count=8, seed=2)


def test_only_successes_become_demonstrations() -> None:
    traces = [trace("good", score=1.0), trace("bad", score=0.4), trace("unknown", score=None)]
    (edit,) = from_successes(traces, count=5, seed=0)
    assert edit.sources == ("good",)
    assert edit.operator == "demonstrations.success"


def test_broken_and_huge_traces_are_left_out() -> None:
    broken = Trace("t", [{"role": "user", "content": "only a question"}])
    assert from_references([broken, trace("huge", size=9_999)], count=5, seed=0) == []


def test_all_demonstrations_can_be_applied_together() -> None:
    edits = from_references([trace(f"t{i}") for i in range(4)], count=4, seed=0)
    edits += from_successes([trace("t0", score=1.0)], count=4, seed=0)
    assert len(apply_edits(harness(), edits).demonstrations) == 5


def test_the_instruction_pool_holds_alternatives() -> None:
    pool = instruction_pool(action_format="one SQL statement")
    assert conflict_groups(pool) == [(0, 1, 2)]
    for edit in pool:
        assert "one SQL statement" in apply_edits(harness(), [edit]).instructions
