"""The benchmark of optimisers: its adapter, its accounts and its verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main as benchmarks_main
from benchmarks.optimizer import report
from benchmarks.optimizer.__main__ import main
from benchmarks.optimizer.engines import make
from benchmarks.optimizer.ours import WorldServer
from benchmarks.optimizer.proposer import propose
from benchmarks.optimizer.results import RIVAL_PYTHON, Bench, Cache, Cell, Result, results
from benchmarks.optimizer.ruleworld import CELLS, SETTINGS, RuleWorld
from benchmarks.optimizer.work import result
from benchmarks.optimizer.worlds import RULEWORLD, Claim, Outcome, Server, Setting
from optimizer.engines.contract import SEED, Ask, Candidate, Doing, Phase, Request
from optimizer.errors import BudgetSpent

S1 = CELLS["S1"]
DOING = Doing(Phase.SCREEN, 0, 1, "")


def line(seed: int, gain: float, **values: Any) -> Result:
    return {
        "seed": seed,
        "gain": gain,
        "select_gain": gain,
        "oracle": 0.5,
        "claimed": gain,
        "is_improved": gain > 0,
        "used": 600,
        "budget": 600,
        "cpu_s": 0.6,
        **values,
    }


def test_the_shared_proposer_takes_the_most_frequent_lessons() -> None:
    lessons = ["b", "a", "c", "b", "a", "", "d", "c", "c"]
    assert propose("text c", lessons) == ["a", "b"]
    assert propose("text", lessons, banned={"c"}, limit=3) == ["a", "b", "d"]


def test_our_engines_see_lessons_as_edits_with_their_support() -> None:
    world = RuleWorld(1)
    adapter = WorldServer(Server(world, 100))
    requests = [Request(Phase.EVIDENCE, SEED, f"train/{i}", 0, 0) for i in range(60)]
    rows = adapter.rollouts(requests, DOING)
    edits = adapter.edits(Ask(0, SEED, tuple(rows)))
    lessons = [row.lesson for row in rows if row.lesson]
    assert [edit.content for edit in edits] == list(dict.fromkeys(lessons))
    assert all(edit.support == lessons.count(edit.content) for edit in edits)
    assert adapter.edits(Ask(1, SEED, tuple(rows[:30])))[0].content == edits[0].content
    both = Candidate(tuple(edits[:2]))
    assert adapter.document(both).splitlines()[1:] == [edit.content for edit in edits[:2]]
    with pytest.raises(BudgetSpent):
        adapter.rollouts(
            [Request(Phase.SCREEN, both, f"train/{i}", 0, 0) for i in range(41)], DOING
        )
    assert adapter.server.used == 60


def test_a_run_is_scored_by_truth_and_ends_at_its_budget() -> None:
    def greedy(server: Server, seed: int) -> Claim:
        server.report(Claim("rule-00", 0.5, True))
        while True:
            server.rollout(server.world.train[0], "")

    found = result(greedy, RULEWORLD, 4, S1, 50)
    world = RuleWorld(4, S1)
    assert found["used"] == found["budget"] == 50
    assert found["gain"] == world.truth("rule-00") - world.truth("")
    assert found["claimed"] == 0.5
    assert found["is_improved"]


@pytest.mark.parametrize("name", ["ours", "ours-80", "ours:race", "one-shot"])
def test_our_engines_play_within_the_budget(name: str) -> None:
    found = result(make(name, {}), RULEWORLD, 3, Setting(budget=120), 120)
    assert 0 < found["used"] <= 120
    assert found["document"].startswith(RuleWorld(3).seed_document)


def test_an_unknown_engine_or_cell_is_named() -> None:
    with pytest.raises(ValueError, match="nobody"):
        make("nobody", {})
    with pytest.raises(SystemExit, match="S9"):
        main(["--engines", "ours", "--cells", "S9"])


def test_options_need_one_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmarks_main(["--worlds", "3"]) == 2
    assert "name of one benchmark" in capsys.readouterr().out


def runs_of(ours: dict[str, float], rivals: dict[str, float], **mine: Any) -> report.Runs:
    runs: dict[tuple[str, str], list[Result]] = {}
    for cell in SETTINGS:
        for engine, gain in {**ours, **rivals}.items():
            extra = mine if engine in ours else {}
            runs[engine, cell] = [line(i, gain + 0.001 * i, **extra) for i in range(20)]
    return runs


def verdicts(runs: report.Runs) -> dict[str, bool]:
    return {f.name.removeprefix("optimizer."): f.ok for f in report.rule_world_bars(runs, "ours")}


def test_bars_are_met_by_an_engine_that_is_ahead_everywhere() -> None:
    runs = runs_of({"ours": 0.3}, {"gepa": 0.2, "skillopt": 0.25})
    assert set(verdicts(runs).values()) == {True}
    assert report.best_rival(runs, "S1") == "skillopt"
    assert report.best_rival(runs, "S1", prefix="gepa") == "gepa"


@pytest.mark.parametrize(
    ("ours", "mine", "missed"),
    [
        (0.1, {}, {"settings_not_below_better_rival", "settings_above_by_sign_test"}),
        (0.3, {"claimed": 0.34}, {"claimed_minus_true_abs"}),
        (0.3, {"used": 601}, {"rollouts_over_budget"}),
    ],
)
def test_each_bar_can_be_missed(ours: float, mine: dict[str, Any], missed: set[str]) -> None:
    found = verdicts(runs_of({"ours": ours}, {"gepa": 0.2}, **mine))
    assert {name for name, ok in found.items() if not ok} == missed


def test_losing_against_the_seed_in_one_setting_is_seen() -> None:
    runs = dict(runs_of({"ours": 0.3}, {"gepa": 0.2}))
    runs["ours", "S4"] = [line(i, -0.02 if i < 2 else 0.4) for i in range(20)]
    found = verdicts(runs)
    assert found["worse_than_seed_rate"]
    assert not found["worse_than_seed_rate_of_worst_setting"]


def test_false_claims_in_the_null_world_are_seen() -> None:
    runs = {("ours", "N"): [line(i, 0.0, is_improved=i < 2) for i in range(20)]}
    assert not verdicts(runs)["null_false_improved_rate"]


def test_in_another_world_gepa_may_lead_within_the_interval() -> None:
    close = {
        ("ours", "world"): [line(i, 0.2 + 0.1 * (i % 2)) for i in range(20)],
        ("gepa", "world"): [line(i, 0.26) for i in range(20)],
    }
    beaten = {**close, ("gepa", "world"): [line(i, 0.5) for i in range(20)]}
    assert all(figure.ok for figure in report.other_world_bars(close, "ours", "world"))
    assert not all(figure.ok for figure in report.other_world_bars(beaten, "ours", "world"))


def test_runs_of_rivals_are_kept_by_what_decides_them(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    cell = Cell("S1", S1, 600)
    Cache(RULEWORLD, path).put("gepa", cell, line(7, 0.1))
    with path.open("a") as file:
        file.write('{"key": "cut o')
    kept = Cache(RULEWORLD, path)
    assert kept.get("gepa", cell, 7) == line(7, 0.1)
    assert kept.get("gepa", cell, 8) is None
    assert kept.get("gepa-8", cell, 7) is None
    assert kept.get("gepa", Cell("S2", CELLS["S2"], 600), 7) is None
    assert Cache("benchmarks.optimizer.otherworld:OtherWorld", path).get("gepa", cell, 7) is None


def test_it_prints_a_line_for_each_engine_and_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--engines", "one-shot", "--cells", "N", "--worlds", "2", "--jobs", "1"]) == 0
    said = capsys.readouterr()
    found = {entry["name"]: entry for entry in map(json.loads, said.out.splitlines())}
    assert found["optimizer.N.one-shot"]["worlds"] == 2
    assert found["optimizer.N.one-shot"]["gain"] == 0.0
    assert found["optimizer.null_false_improved_rate"]["ok"]
    assert "2 of 2 runs" in said.err


def test_lessons_are_single_edits_in_every_world() -> None:
    for reference in ("otherworld:OtherWorld", "staircase:Staircase"):
        found = result(make("ours", {}), f"benchmarks.optimizer.{reference}", 2, None, 160)
        assert 0 < found["used"] <= 160
        assert found["oracle"] > 0.3


@pytest.mark.parametrize("engine", ["gepa", "gepa-2x4-best", "gepa-8-ledger"])
def test_gepa_plays_within_the_budget_and_learns(engine: str) -> None:
    check_rival([result(make(engine, {}), RULEWORLD, seed, CELLS["S3"], 600) for seed in (1, 2)])


@pytest.mark.slow
@pytest.mark.skipif(not RIVAL_PYTHON.exists(), reason="`make bench-rivals` installs skillopt")
def test_skillopt_plays_within_the_budget_and_learns() -> None:
    bench = Bench(RULEWORLD, (Cell("S3", CELLS["S3"], 600),), ("skillopt",), (1, 2), {})
    check_rival([run for *_, run in results(bench, jobs=1, say=print, use_cache=False)])


def check_rival(found: Sequence[Mapping[str, Any]]) -> None:
    assert [run["used"] <= 600 for run in found] == [True, True]
    assert sum(run["gain"] for run in found) > 0.2
    assert all(run["claimed"] > 0 for run in found)


def test_an_outcome_may_be_a_plain_pair() -> None:
    class Pairs(RuleWorld):
        def rollout(self, task: Any, document: str) -> Any:
            return (0.5, "a lesson")

    server = Server(Pairs(0), 1)
    assert server.rollout(server.world.train[0], "") == Outcome(0.5, "a lesson")
