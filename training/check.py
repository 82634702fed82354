"""`python -m training.check FILE`: does this trainer compute the ECHO objective?

Runs a file of format echo-vectors/1. Each case goes through the functions that the trainer itself
uses (rows, streams, loss, head), in float64 and float32, as one batch and once per split, and is
compared with the expected numbers, with the values that known defects would give, and with the
properties that the case names. One line per case and a summary; exit code 1 if a case fails, 2 if
the file cannot be used.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from training import objective
from training.comparing import Values, against_expected, compare, defects_shown
from training.errors import TrainingError
from training.losses import build_streams
from training.vector_values import KINDS, grad_of, is_finite, leaves_of
from training.vectors import FORMAT, rows_of, spec_of, token_rows_of

DTYPES = {"float64": torch.float64, "float32": torch.float32}
_TOLERANCE = {"float64_abs": 1e-9, "float32_abs": 1e-5}


@dataclass(slots=True)
class CaseReport:
    """What went wrong in one case; no problems means it passed."""

    case_id: str
    problems: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.check", description=__doc__)
    parser.add_argument("file", type=Path, help=f"a file of format {FORMAT}")
    path: Path = parser.parse_args(argv).file
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        print(f"{path}: not a file of format {FORMAT}", file=sys.stderr)
        return 2
    reports = check_document(document)
    for report in reports:
        print(f"{'FAIL' if report.problems else 'ok  '} {report.case_id}")
        for problem in report.problems:
            print(f"       {problem}")
    failed = sum(1 for report in reports if report.problems)
    print(f"{len(reports)} cases, {len(reports) - failed} passed, {failed} failed")
    expected_count = document.get("case_count", len(reports))
    if expected_count != len(reports):
        print(f"the file announces {expected_count} cases", file=sys.stderr)
        return 1
    return 1 if failed or not reports else 0


def check_document(document: Mapping[str, Any]) -> list[CaseReport]:
    """Run every case of a parsed file."""
    by_id = {case["id"]: case for case in document["cases"]}
    return [check_case(case, by_id) for case in document["cases"]]


def check_case(case: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> CaseReport:
    """Run one case in both precisions; `by_id` serves checks that refer to another case."""
    report = CaseReport(str(case["id"]))
    kind = case["kind"]
    if kind not in KINDS:
        report.problems.append(f"unknown kind {kind!r}")
        return report
    for name, dtype in DTYPES.items():
        tolerance = float({**_TOLERANCE, **case.get("tolerance", {})}[f"{name}_abs"])
        try:
            values = KINDS[kind](case, dtype)
            problems = against_expected(case["expected"], values, tolerance)
            problems += defects_shown(case, values, tolerance)
            for check in case.get("checks") or []:
                problems += _check(check, case, values, dtype, tolerance, by_id)
            if case["input"].get("splits"):
                problems += _check_splits(case, values, dtype, tolerance)
        except (TrainingError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        report.problems += [f"{name}: {problem}" for problem in problems]
    return report


def _check(
    check: str,
    case: Mapping[str, Any],
    values: Values,
    dtype: torch.dtype,
    tolerance: float,
    by_id: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    name, _, argument = check.partition(":")
    match name:
        case "lambda_zero_bitwise":
            return _check_bitwise(case, values, dtype)
        case "env_path_not_executed":
            return _check_not_executed(case, values, dtype)
        case "finite":
            return [] if is_finite(values["_bits"]) else ["loss or gradient is not finite"]
        case "graph_connected_zero":
            is_zero = values["loss"] == 0.0 and is_finite(values["_bits"])
            is_connected = values["_connected"]
            return [] if is_zero and is_connected else ["the zero loss does not allow backward"]
        case "split_invariant":
            return []  # every case with splits runs them
        case "same_loss_as":
            if argument not in by_id:
                return [f"same_loss_as: no case {argument!r}"]
            other = KINDS[by_id[argument]["kind"]](by_id[argument], dtype)
            names = ("loss", "loss_pg", "loss_env")
            problems = compare({n: other[n] for n in names}, values, tolerance)
            return [f"{check}: {problem}" for problem in problems]
        case "rows_sum_to_zero":
            return _check_row_sums(values, dtype)
        case "linear_in_lambda":
            return _check_linear(case, values, dtype, tolerance)
        case _:
            return [f"unknown check {check!r}"]


def _with_input(case: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {**case, "input": {**case["input"], **changes}}


def _check_bitwise(case: Mapping[str, Any], values: Values, dtype: torch.dtype) -> list[str]:
    """Compare with the policy loss alone: rows whose observations were never observations."""
    swap = str.maketrans("EW", "CC")
    name = "rollouts" if case["kind"] == "objective" else "sequences"
    rows = [{**row, "roles": row["roles"].translate(swap)} for row in case["input"][name]]
    plain = KINDS[case["kind"]](_with_input(case, **{name: rows, "lambda": 0.0}), dtype)
    pairs = zip(values["_bits"], plain["_bits"], strict=True)
    return [] if all(torch.equal(a, b) for a, b in pairs) else ["not bit-equal to the policy loss"]


def _check_not_executed(case: Mapping[str, Any], values: Values, dtype: torch.dtype) -> list[str]:
    """Poison all that only the environment path may read: any use of it would show as nan."""
    name = "rollouts" if case["kind"] == "objective" else "sequences"
    rows = [_poisoned(row, case["kind"]) for row in case["input"][name]]
    other = KINDS[case["kind"]](_with_input(case, **{name: rows}), dtype)
    pairs = zip(values["_bits"], other["_bits"], strict=True)
    is_untouched = values["loss_env"] is None and all(torch.equal(a, b) for a, b in pairs)
    return [] if is_untouched else ["the environment path ran although lambda is 0"]


def _poisoned(row: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "objective":
        pairs = zip(row["roles"], row["logprobs"], strict=True)
        return {**row, "logprobs": [value if role == "A" else "nan" for role, value in pairs]}
    following = [*row["roles"][1:], "C"]
    pairs = zip(following, row["logits"], strict=True)
    return {
        **row,
        "logits": [line if role == "A" else ["nan"] * len(line) for role, line in pairs],
    }


def _check_row_sums(values: Values, dtype: torch.dtype) -> list[str]:
    # fsum removes the rounding of the check itself; what is left is the gradient's own.
    limit = 1e-15 if dtype == torch.float64 else 1e-6
    problems = []
    for i, table in enumerate(values["grad_logits"]):
        for t, line in enumerate(table):
            total = abs(math.fsum(line))
            if total >= limit * max(1.0, math.fsum(abs(g) for g in line)):
                problems.append(f"gradient row [{i}][{t}] sums to {total:.3g}")
    return problems


def _check_linear(
    case: Mapping[str, Any], values: Values, dtype: torch.dtype, tolerance: float
) -> list[str]:
    lambda_env = float(case["input"]["lambda"])
    run = KINDS[case["kind"]]
    base = run(_with_input(case, **{"lambda": 0.0}), dtype)["loss"]
    slope = (values["loss"] - base) / lambda_env
    for factor in (0.1, 2.0, 10.0):
        scaled = lambda_env * factor
        other = (run(_with_input(case, **{"lambda": scaled}), dtype)["loss"] - base) / scaled
        # Dividing by a small lambda magnifies the rounding of the two losses.
        if abs(other - slope) > tolerance / min(scaled, lambda_env, 1.0):
            return [f"slope {slope!r} at lambda {lambda_env} but {other!r} at {scaled}"]
    return []


def _check_splits(
    case: Mapping[str, Any], whole: Values, dtype: torch.dtype, tolerance: float
) -> list[str]:
    problems = []
    for number, split in enumerate(case["input"]["splits"]):
        values = _split_values(case, split, dtype)
        names = [n for n in ("loss", "loss_pg", "loss_env", *_GRADIENTS) if n in values]
        for problem in compare(
            {n: case["expected"].get(n, whole[n]) for n in names}, values, tolerance
        ):
            problems.append(f"split {number}: {problem}")
    return problems


_GRADIENTS = ("grad_logprobs", "grad_logits")


def _split_values(
    case: Mapping[str, Any], split: Sequence[Sequence[Sequence[int]]], dtype: torch.dtype
) -> Values:
    """Ranks of micro-batches: gradients add up on a rank, ranks are averaged and rescaled."""
    given = case["input"]
    is_logits = case["kind"] == "logits"
    spec = spec_of(given)
    sequences = given["sequences"] if is_logits else given["rollouts"]
    streams = build_streams(token_rows_of(sequences) if is_logits else rows_of(sequences), spec)
    name = "logits" if is_logits else "logprobs"
    whole_R = leaves_of([s[name] for s in sequences], dtype)
    summed_R = [torch.zeros_like(leaf) for leaf in whole_R]
    loss = policy = env = 0.0
    world_size = len(split)
    for micro_batches in split:
        rank_R = leaves_of([s[name] for s in sequences], dtype)
        for indices in micro_batches:
            leaves = [rank_R[i] for i in indices]
            part_streams = [streams.rows[i] for i in indices]
            if is_logits:
                ids = [sequences[i]["token_ids"] for i in indices]
                parts = objective.from_logits(leaves, ids, part_streams, spec)
            else:
                parts = objective.from_logprobs(leaves, part_streams, spec)
            parts.loss.backward()  # type: ignore[no-untyped-call]
            loss += float(parts.loss.detach())
            policy += float(parts.policy)
            env += 0.0 if parts.env is None else float(parts.env)
        for total, leaf in zip(summed_R, rank_R, strict=True):
            # As data-parallel training does it: the mean over ranks, times the number of ranks.
            total += grad_of(leaf) / world_size * world_size
    return {
        "loss": loss,
        "loss_pg": policy,
        "loss_env": env if streams.has_env else None,
        "grad_logits" if is_logits else "grad_logprobs": [g.tolist() for g in summed_R],
    }


if __name__ == "__main__":
    sys.exit(main())
