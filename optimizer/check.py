"""Runs a file of statistics vectors: `python -m optimizer.check FILE`.

The format is that of `tests/vectors/certify.json`; any section may be missing. Prints one line per
case that fails and a summary; exit code 0 only if all hold, 1 if one fails, 2 for an unusable file.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.errors import StatisticsDomain
from optimizer.statistics import paired
from optimizer.statistics.betting import GRID, MIN_COVERAGE, EProcess, alpha_share, e_process
from optimizer.statistics.lattice import TooWide
from optimizer.statistics.paired import Pair, PairedResult, compare
from optimizer.statistics.planning import fewest_straight_wins, ties_until_non_inferior

RELATIVE, ABSOLUTE = 1e-9, 1e-12

Case = tuple[str, Callable[[], list[str]]]


def check_file(path: Path) -> tuple[int, list[str]]:
    """Number of cases, and a line per fault."""
    data = json.loads(path.read_text(encoding="utf-8"))
    faults, n = [], 0
    for name, run in _cases(data):
        n += 1
        try:
            faults += [f"{name}: {fault}" for fault in run()]
        except StatisticsDomain as error:
            faults.append(f"{name}: refused: {error}")
    return n, faults


def _cases(data: Mapping[str, Any]) -> Iterator[Case]:
    grid = tuple(data.get("conventions", {}).get("lambda_grid", GRID))
    for case in data.get("e_process", []):
        yield f"e_process/{case['name']}", partial(_e_process, case, grid)
    for i, values in enumerate(data.get("domain_errors", {}).get("lists", [])):
        yield f"domain_errors/{i}", partial(_refused, values, grid)
    spending = data.get("alpha_spending", {})
    for row in spending.get("rows", []):
        total = spending.get("alpha_total", 0.05)
        yield f"alpha_spending/{row['j']}", partial(_spending, row, total, grid)
    if "planning_numbers" in data:
        yield "planning_numbers", partial(_planning, data["planning_numbers"], grid)
    for case in data.get("paired", []):
        yield f"paired/{case['name']}", partial(_paired, case)


# --- sections


def _e_process(case: Mapping[str, Any], grid: Sequence[float]) -> list[str]:
    found = e_process(
        [_number(d) for d in case["d"]],
        alpha=case.get("alpha", 0.05),
        shift=case.get("shift", 0.0),
        min_coverage=case.get("min_coverage", MIN_COVERAGE),
        grid=grid,
    )
    faults = _differ(_e_process_values(found), case["expect"])
    if "threshold" in case:
        faults += _differ({"threshold": found.threshold}, {"threshold": case["threshold"]})
    return faults


def _e_process_values(found: EProcess) -> dict[str, Any]:
    return {
        "e_plus": list(found.e_plus),
        "e_minus": list(found.e_minus),
        "crossing_pair": found.crossing_pair,
        "crossing_position": found.crossing_position,
        "valid_pairs_at_end_or_crossing": found.valid,
        "scheduled_at_end_or_crossing": found.scheduled,
        "coverage": found.coverage,
        "verdict": str(found.verdict),
        "reason": found.reason,
        "mean_of_all_valid": found.mean,
    }


def _refused(values: Sequence[Any], grid: Sequence[float]) -> list[str]:
    try:
        e_process([_number(value) for value in values], grid=grid)
    except StatisticsDomain:
        return []
    return [f"{values} was accepted"]


def _spending(row: Mapping[str, Any], total: float, grid: Sequence[float]) -> list[str]:
    share = alpha_share(row["j"], total)
    found = {
        "alpha_j": share,
        "threshold": 1.0 / share,
        "fewest_straight_wins": fewest_straight_wins(share, grid),
    }
    return _differ(found, row)


def _planning(expect: Mapping[str, Any], grid: Sequence[float]) -> list[str]:
    faults = []
    for key, value in expect.get("fewest_straight_wins", {}).items():
        found = fewest_straight_wins(float(key.removeprefix("alpha_")), grid)
        faults += _differ({key: found}, {key: value})
    prefix = "exact_ties_until_non_inferior_alpha_"
    for name in (key for key in expect if key.startswith(prefix)):
        alpha = float(name.removeprefix(prefix))
        for margin, value in expect[name].items():
            found = ties_until_non_inferior(float(margin), alpha, grid)
            faults += _differ({margin: found}, {margin: value})
    return faults


def _paired(case: Mapping[str, Any]) -> list[str]:
    tasks = case.get("task") or [f"unit-{i}" for i in range(len(case["seed"]))]
    pairs = [
        Pair(task, _number(base), _number(candidate))
        for task, base, candidate in zip(tasks, case["seed"], case["candidate"], strict=True)
    ]
    expect = dict(case["expect"])
    naive = expect.pop("if_replicates_were_wrongly_treated_as_independent", None)
    faults = _differ(_paired_values(pairs), expect)
    if naive is not None:
        single = [Pair(f"unit-{i}", p.base, p.candidate) for i, p in enumerate(pairs)]
        faults += _differ(_paired_values(single), naive)
    return faults


def _paired_values(pairs: Sequence[Pair]) -> dict[str, Any]:
    found = compare(pairs)
    units = paired.units_by_task(pairs)
    values = {
        "units": found.units,
        "mean_difference": found.mean,
        "sd_unbiased": found.sd,
        "standard_error": found.standard_error,
        "bootstrap_seeded": _intervals(found.intervals),
        "degenerate_interval": found.is_degenerate,
        **_tests(found),
    }
    try:
        values["bootstrap_exact"] = _intervals(paired.bootstrap_exact(units))
    except TooWide as error:
        values["bootstrap_exact"] = str(error)
    return values


def _tests(found: PairedResult) -> dict[str, Any]:
    sign, flip, mcnemar = found.sign_test, found.sign_flip, found.mcnemar
    return {
        "sign_test": {
            "wins": sign.wins,
            "losses": sign.losses,
            "ties": sign.ties,
            "one_sided_improved": sign.one_sided,
            "two_sided": sign.two_sided,
        },
        "sign_flip": flip and {"one_sided_improved": flip.one_sided, "two_sided": flip.two_sided},
        "mcnemar": mcnemar
        and {
            "both_pass": mcnemar.both_pass,
            "only_candidate": mcnemar.only_candidate,
            "only_seed": mcnemar.only_base,
            "both_fail": mcnemar.both_fail,
            "one_sided_improved": mcnemar.one_sided,
            "two_sided": mcnemar.two_sided,
        },
    }


def _intervals(found: Mapping[int, tuple[float, float]]) -> dict[str, list[float]]:
    return {str(level): list(bounds) for level, bounds in found.items()}


# --- comparison


def _differ(found: Any, expect: Any, at: str = "") -> list[str]:
    """Faults between what was found and what is expected; keys that we do not compute are notes."""
    if isinstance(expect, Mapping) and isinstance(found, Mapping):
        known = [key for key in expect if key in found]
        return [
            line
            for key in known
            for line in _differ(found[key], expect[key], f"{at}.{key}".lstrip("."))
        ]
    if isinstance(expect, list) and isinstance(found, list) and len(expect) == len(found):
        return [
            line
            for i, (a, b) in enumerate(zip(found, expect, strict=True))
            for line in _differ(a, b, f"{at}[{i}]")
        ]
    if _is_number(expect) and _is_number(found):
        # Counts are whole numbers on both sides and must be equal; a mean of 1 may be written 1
        # or 1.0.
        both_whole = isinstance(expect, int) and isinstance(found, int)
        same = found == expect if both_whole else _is_close(found, expect)
    else:
        same = type(found) is type(expect) and found == expect
    return [] if same else [f"{at} is {found!r}, expected {expect!r}"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _number(value: Any) -> Any:
    """JSON has no word for some numbers; files write them as texts."""
    return float(value) if isinstance(value, str) else value


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m optimizer.check FILE", file=sys.stderr)
        return 2
    try:
        n, faults = check_file(Path(arguments[0]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{arguments[0]}: not a file of vectors: {error!r}", file=sys.stderr)
        return 2
    for fault in faults:
        print(f"FAIL {fault}")
    bad = len({fault.split(":")[0] for fault in faults})
    print(f"{n - bad} of {n} cases hold")
    return 1 if faults or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
