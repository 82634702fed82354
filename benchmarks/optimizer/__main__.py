"""`python -m benchmarks.optimizer`: optimisers against each other, in worlds whose truth is known.

    python -m benchmarks.optimizer --worlds 60                       RuleWorld, all bars
    python -m benchmarks.optimizer --engines ours --cells S1 --worlds 20
    python -m benchmarks.optimizer --world package.module:Class      a world of your own

Prints JSON lines: one per engine and cell, one per comparison, and one per bar. Ends with 1 if a
bar is missed. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from benchmarks.figures import Figure
from benchmarks.optimizer import report, ruleworld
from benchmarks.optimizer.engines import DEFAULT, is_rival
from benchmarks.optimizer.results import RIVAL_PYTHON, Bench, Cell, RunFailed, results
from benchmarks.optimizer.worlds import DEFAULT_BUDGET, RULEWORLD, load


def run(arguments: Sequence[str] = ()) -> Iterator[report.Line | Figure]:
    options = _parser().parse_args(arguments)
    try:
        bench = _bench(options)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    if any(map(is_rival, bench.engines)) and not RIVAL_PYTHON.exists():
        raise SystemExit(
            f"rivals run in {RIVAL_PYTHON}, which is missing: `make bench-rivals` installs them; "
            "or leave them out with --engines ours"
        )
    try:
        found = results(bench, jobs=options.jobs, say=_say, use_cache=not options.no_cache)
        runs = report.by_cell(found)
    except RunFailed as error:
        raise SystemExit(str(error)) from error
    yield report.Line(
        "optimizer.bench",
        {
            "world": bench.world,
            "worlds": len(bench.seeds),
            "first": bench.seeds[0],
            "engines": list(bench.engines),
            "settings": dict(bench.settings),
        },
    )
    ours = next((name for name in bench.engines if not is_rival(name)), None)
    for cell in bench.cells:
        for engine in bench.engines:
            yield report.summary(engine, cell.name, runs[engine, cell.name])
        rival = report.best_rival(runs, cell.name)
        if ours is not None and rival is not None:
            pair = report.paired(runs[ours, cell.name], rival, runs[rival, cell.name])
            yield pair.line(cell.name, ours)
    if ours is None:
        return
    if bench.world == RULEWORLD:
        yield from report.rule_world_bars(runs, ours)
    else:
        yield from report.other_world_bars(runs, ours, bench.cells[0].name)


def _bench(options: argparse.Namespace) -> Bench:
    if options.worlds < 1:
        raise ValueError("--worlds accepts at least 1")
    made = load(options.world)
    if options.world == RULEWORLD:
        names = options.cells.split(",") if options.cells else [*ruleworld.SETTINGS, ruleworld.NULL]
        if unknown := set(names) - ruleworld.CELLS.keys():
            raise ValueError(
                f"--cells: {', '.join(sorted(unknown))} unknown; there are "
                f"{', '.join(ruleworld.CELLS)}"
            )
        cells = [
            Cell(name, ruleworld.CELLS[name], options.budget or ruleworld.CELLS[name].budget)
            for name in names
        ]
    else:
        budget = options.budget or getattr(made, "budget", DEFAULT_BUDGET)
        cells = [Cell("world", None, int(budget))]
    return Bench(
        world=options.world,
        cells=tuple(cells),
        engines=tuple(options.engines.split(",")),
        seeds=tuple(range(options.first, options.first + options.worlds)),
        settings=options.settings,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks.optimizer", description="Optimisers in worlds whose truth is known."
    )
    parser.add_argument("--worlds", type=int, default=60, help="worlds of each cell")
    parser.add_argument("--first", type=int, default=1000, help="seed of the first world")
    parser.add_argument("--world", default=RULEWORLD, help="module:Class of another world")
    parser.add_argument("--cells", default="", help="of RuleWorld, such as S1,S4,N; all without")
    parser.add_argument("--engines", default=",".join(DEFAULT), help="the first of ours is judged")
    parser.add_argument("--settings", type=json.loads, default={}, help="of our engine, as JSON")
    parser.add_argument("--budget", type=int, default=0, help="rollouts of each run")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--no-cache", action="store_true", help="run rivals again")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    is_missed = False
    for line in run(arguments):
        print(line.line(), flush=True)
        is_missed |= not line.ok
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
