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
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training import objective
from training.credit import group_advantages
from training.errors import TrainingError
from training.filters import incorrect_kept, turn_quality
from training.head import chunked_logprobs, token_logprobs
from training.losses import Streams, build_streams
from training.rows import Node, count_once, node_weights
from training.schedule import CoefficientSchedule
from training.types import (
    AdvantageMode,
    AdvantageSpec,
    EnvNorm,
    EnvTarget,
    GroupOfOne,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
    Row,
    RowStatus,
    TokenKind,
    TurnCounts,
)

FORMAT = "echo-vectors/1"
DTYPES = {"float64": torch.float64, "float32": torch.float32}
_ROLES = {
    "A": TokenKind.ACTION,
    "E": TokenKind.ENV_OUTPUT,
    "W": TokenKind.WARNING,
    "C": TokenKind.CONTEXT,
    "S": TokenKind.SCAFFOLD,
    "P": TokenKind.PAD,
}
_TOLERANCE = {"float64_abs": 1e-9, "float32_abs": 1e-5}

Values = dict[str, Any]


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
    if kind not in _KINDS:
        report.problems.append(f"unknown kind {kind!r}")
        return report
    for name, dtype in DTYPES.items():
        tolerance = float({**_TOLERANCE, **case.get("tolerance", {})}[f"{name}_abs"])
        try:
            values = _KINDS[kind](case, dtype)
            problems = _compare_expected(case["expected"], values, tolerance)
            problems += _defects(case, values, tolerance)
            for check in case.get("checks") or []:
                problems += _check(check, case, values, dtype, tolerance, by_id)
            if case["input"].get("splits"):
                problems += _check_splits(case, values, dtype, tolerance)
        except (TrainingError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        report.problems += [f"{name}: {problem}" for problem in problems]
    return report


# Values of each kind


def _objective_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    rows = _rows(given["rollouts"])
    spec = _spec(given)
    streams = build_streams(rows, spec)
    logprobs_R = _leaves([r["logprobs"] for r in given["rollouts"]], dtype)
    parts = objective.from_logprobs(logprobs_R, streams.rows, spec)
    values = _loss_values(streams, parts)
    values["grad_logprobs"] = _gradients(parts.loss, logprobs_R)
    values["_connected"] = parts.loss.requires_grad
    values["_bits"] = [parts.loss.detach(), *[_grad(leaf) for leaf in logprobs_R]]
    return values


def _logits_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    sequences = given["sequences"]
    rows = _token_rows(sequences)
    spec = _spec(given)
    streams = build_streams(rows, spec)
    logits_R = _leaves([s["logits"] for s in sequences], dtype)
    ids_R = [s["token_ids"] for s in sequences]
    parts = objective.from_logits(logits_R, ids_R, streams.rows, spec)
    values = _loss_values(streams, parts)
    values["grad_logits"] = _gradients(parts.loss, logits_R)
    values["target_logprobs"] = [
        _target_logprobs(logits.detach(), row, spec)
        for logits, row in zip(logits_R, rows, strict=True)
    ]
    values["nonzero_grad_rows"] = [
        [i, t]
        for i, logits in enumerate(logits_R)
        for t in range(logits.shape[0])
        if bool((_grad(logits)[t] != 0).any())
    ]
    values["_connected"] = parts.loss.requires_grad
    values["_bits"] = [parts.loss.detach(), *[_grad(leaf) for leaf in logits_R]]
    values["_head"] = _head_gradients(logits_R, ids_R, streams, spec)
    return values


def _target_logprobs(logits_TV: Tensor, row: Row, spec: ObjectiveSpec) -> list[float]:
    result: list[float] = []
    for t in range(len(row.ids) - 1):
        is_action = row.kinds[t + 1] is TokenKind.ACTION
        temperature = spec.policy_temperature if is_action else spec.env_temperature
        target = torch.tensor([row.ids[t + 1]])
        result.append(float(token_logprobs(logits_TV[t : t + 1], target, temperature)[0]))
    return result


def _head_gradients(
    logits_R: Sequence[Tensor],
    ids_R: Sequence[Sequence[int]],
    streams: Streams,
    spec: ObjectiveSpec,
) -> list[list[list[float]]] | None:
    """The same gradient through the chunked head, with the identity as its weight."""
    if not all(bool(torch.isfinite(logits).all()) for logits in logits_R):
        return None  # infinity times the zeros of the identity is nan
    leaves = [logits.detach().clone().requires_grad_() for logits in logits_R]
    total = torch.zeros((), dtype=leaves[0].dtype)
    for leaf, ids, stream in zip(leaves, ids_R, streams.rows, strict=True):
        identity = torch.eye(leaf.shape[1], dtype=leaf.dtype)

        def logprobs(
            targets: Sequence[int],
            temperature: float,
            hidden: Tensor = leaf,
            weight: Tensor = identity,
            tokens: Sequence[int] = ids,
        ) -> Tensor:
            wanted = torch.tensor([tokens[t + 1] for t in targets], dtype=torch.long)
            rows = torch.tensor(targets, dtype=torch.long)
            return chunked_logprobs(hidden[rows], weight, wanted, temperature=temperature, chunk=3)

        policy = objective.policy_targets([stream], dtype=leaf.dtype)
        rl_N = logprobs(stream.rl_targets, spec.policy_temperature)
        total = total + objective.policy_loss(rl_N, policy, spec)
        if streams.has_env:
            env_N = logprobs(stream.env_targets, spec.env_temperature)
            weights = objective.env_weights([stream], dtype=leaf.dtype)
            total = total + objective.env_loss(env_N, weights)
    gradients = _gradients(total, leaves)
    assert isinstance(gradients, list)
    return gradients


def _advantage_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    values = group_advantages(
        groups=[str(group) for group in given["groups"]],
        rewards=[_number(reward) for reward in given["rewards"]],
        spec=_advantage(given["advantage"]),
    )
    return {"advantages": [_rounded(value, dtype) for value in values]}


def _schedule_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    schedule = CoefficientSchedule.from_mapping(given)
    return {
        "coefficients": [_rounded(schedule.value(step), dtype) for step in given["steps_to_check"]]
    }


def _filter_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    qualities = [turn_quality(TurnCounts(**counts)) for counts in given.get("turn_quality") or []]
    return {
        "turn_quality": [
            {"valid_tool_call": _rounded(valid, dtype), "parse_clean": _rounded(clean, dtype)}
            for valid, clean in qualities
        ],
        "correctness": [
            {"incorrect_kept": incorrect_kept(**group)} for group in given.get("correctness") or []
        ],
    }


def _role_weight_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    nodes = [
        Node(
            role=node["role"],
            is_sampled=node["sampled"],
            n_tokens=node["n_tokens"],
            content=None if node.get("content") is None else tuple(node["content"]),
        )
        for node in case["input"]["nodes"]
    ]
    weights = node_weights(nodes, case["input"]["role_weights"])
    return {"weights": [_rounded(weight, dtype) for weight in weights]}


def _shared_prefix_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    branches = given["branches"]
    rows = [
        _row(
            rollout="tree",
            group="tree",
            reward=None,
            status=RowStatus.OK,
            kinds=[TokenKind.CONTEXT, *(_ROLES[node["role"]] for node in branch)],
        )
        for branch in branches
    ]
    start = object()
    keys = [[start, *(node["token"] for node in branch)] for branch in branches]
    spec = ObjectiveSpec(
        lambda_env=1.0,
        env_norm=EnvNorm(given["env_norm"]),
        env_eps=float(given.get("env_eps", 0.0)),
        env_target=EnvTarget(given.get("env_target", "env_only")),
        max_seq_len=given.get("max_seq_len"),
    )
    streams = build_streams(count_once(rows, keys), spec)
    logprobs_R = _leaves([[node["logprob"] for node in branch] for branch in branches], dtype)
    parts = objective.from_logprobs(logprobs_R, streams.rows, spec)
    return {"env_tokens": streams.n_env, "loss_env": _env_value(parts)}


_KINDS: dict[str, Callable[[Mapping[str, Any], torch.dtype], Values]] = {
    "objective": _objective_values,
    "logits": _logits_values,
    "advantage": _advantage_values,
    "schedule": _schedule_values,
    "rollout_filter": _filter_values,
    "role_weights": _role_weight_values,
    "shared_prefix": _shared_prefix_values,
}


# Properties


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
            return [] if _is_finite(values["_bits"]) else ["loss or gradient is not finite"]
        case "graph_connected_zero":
            is_zero = values["loss"] == 0.0 and _is_finite(values["_bits"])
            is_connected = values["_connected"]
            return [] if is_zero and is_connected else ["the zero loss does not allow backward"]
        case "split_invariant":
            return []  # every case with splits runs them
        case "same_loss_as":
            if argument not in by_id:
                return [f"same_loss_as: no case {argument!r}"]
            other = _KINDS[by_id[argument]["kind"]](by_id[argument], dtype)
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
    plain = _KINDS[case["kind"]](_with_input(case, **{name: rows, "lambda": 0.0}), dtype)
    pairs = zip(values["_bits"], plain["_bits"], strict=True)
    return [] if all(torch.equal(a, b) for a, b in pairs) else ["not bit-equal to the policy loss"]


def _check_not_executed(case: Mapping[str, Any], values: Values, dtype: torch.dtype) -> list[str]:
    """Poison all that only the environment path may read: any use of it would show as nan."""
    name = "rollouts" if case["kind"] == "objective" else "sequences"
    rows = [_poisoned(row, case["kind"]) for row in case["input"][name]]
    other = _KINDS[case["kind"]](_with_input(case, **{name: rows}), dtype)
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
    run = _KINDS[case["kind"]]
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
    spec = _spec(given)
    sequences = given["sequences"] if is_logits else given["rollouts"]
    streams = build_streams(_token_rows(sequences) if is_logits else _rows(sequences), spec)
    name = "logits" if is_logits else "logprobs"
    whole_R = _leaves([s[name] for s in sequences], dtype)
    summed_R = [torch.zeros_like(leaf) for leaf in whole_R]
    loss = policy = env = 0.0
    world_size = len(split)
    for micro_batches in split:
        rank_R = _leaves([s[name] for s in sequences], dtype)
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
            total += _grad(leaf) / world_size * world_size
    return {
        "loss": loss,
        "loss_pg": policy,
        "loss_env": env if streams.has_env else None,
        "grad_logits" if is_logits else "grad_logprobs": [g.tolist() for g in summed_R],
    }


# Reading the file


def _spec(given: Mapping[str, Any]) -> ObjectiveSpec:
    return ObjectiveSpec(
        lambda_env=float(given["lambda"]),
        env_norm=EnvNorm(given["env_norm"]),
        env_eps=float(given.get("env_eps") or 0.0),
        env_target=EnvTarget(given.get("env_target", "env_only")),
        max_env_tokens_per_observation=given.get("max_env_tokens_per_observation"),
        env_temperature=float(given.get("env_temperature", 1.0)),
        policy_temperature=float(given.get("policy_temperature", 1.0)),
        policy_loss=PolicyLoss.PPO_CLIP,
        pg_norm=PgNorm(given["pg_norm"]),
        clip_low=float(given["clip"]["low"]),
        clip_high=float(given["clip"]["high"]),
        use_rl=bool(given.get("use_rl", True)),
        max_seq_len=given.get("max_seq_len"),
        cut=given.get("cut"),
        advantage=_advantage(given["advantage"]),
    )


def _advantage(given: Mapping[str, Any]) -> AdvantageSpec:
    return AdvantageSpec(
        mode=AdvantageMode.STD if given["std"] else AdvantageMode.CENTRE,
        eps=float(given["eps"]),
        group_of_one=GroupOfOne.REWARD,
    )


def _rows(rollouts: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows from target lists: a context token goes in front, since it is never a target."""
    rows = []
    for number, rollout in enumerate(rollouts):
        old = rollout.get("old_logprobs")
        kinds = [TokenKind.CONTEXT, *(_ROLES[role] for role in rollout["roles"])]
        row = _row(
            rollout=str(number),
            group=str(rollout["group"]),
            reward=_number(rollout["reward"]),
            status=RowStatus(rollout["status"]),
            kinds=kinds,
        )
        logprobs = None if old is None else (0.0, *(float(value) for value in old))
        rows.append(replace(row, logprobs=logprobs))
    return rows


def _token_rows(sequences: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows from token lists; their old log-probs, if any, run over targets or over tokens."""
    rows = []
    for number, sequence in enumerate(sequences):
        row = _row(
            rollout=str(number),
            group=str(sequence["group"]),
            reward=_number(sequence["reward"]),
            status=RowStatus(sequence["status"]),
            kinds=[_ROLES[role] for role in sequence["roles"]],
        )
        old = sequence.get("old_logprobs")
        if old is not None:
            values = tuple(float(value) for value in old)
            values = (0.0, *values) if len(values) == len(row.kinds) - 1 else values
            row = replace(row, logprobs=values)
        rows.append(replace(row, ids=tuple(sequence["token_ids"])))
    return rows


def _row(
    *,
    rollout: str,
    group: str,
    reward: float | None,
    status: RowStatus,
    kinds: Sequence[TokenKind],
) -> Row:
    return Row(
        rollout=rollout,
        group=group,
        reward=reward,
        status=status,
        ids=(0,) * len(kinds),
        kinds=tuple(kinds),
        logprobs=None,
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _floats(value: Any) -> Any:
    """Nested lists with the strings -inf and nan turned into numbers."""
    if isinstance(value, list):
        return [_floats(item) for item in value]
    return float(value)


def _leaves(tables: Sequence[Any], dtype: torch.dtype) -> list[Tensor]:
    return [torch.tensor(_floats(table), dtype=dtype, requires_grad=True) for table in tables]


def _rounded(value: float | None, dtype: torch.dtype) -> float | None:
    return None if value is None else float(torch.tensor(value, dtype=dtype))


def _grad(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _gradients(loss: Tensor, leaves: Sequence[Tensor]) -> Any:
    loss.backward()  # type: ignore[no-untyped-call]
    return [_grad(leaf).tolist() for leaf in leaves]


def _env_value(parts: objective.LossParts) -> float | None:
    return None if parts.env is None else float(parts.env)


def _loss_values(streams: Streams, parts: objective.LossParts) -> Values:
    return {
        "batch_size": streams.batch_size,
        "counts": {
            "action": [len(s.sets.actions) for s in streams.rows],
            "env_target": [len(s.sets.env_targets) for s in streams.rows],
            "observation": [len(s.sets.observation) for s in streams.rows],
        },
        "advantages": [_rounded(s.advantage, parts.loss.dtype) for s in streams.rows],
        "loss_pg": float(parts.policy),
        "loss_env": _env_value(parts),
        "loss": float(parts.loss.detach()),
    }


def _is_finite(tensors: Sequence[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


# Comparing


def compare(expected: Any, actual: Any, tolerance: float, path: str = "") -> list[str]:
    """Differences between nested values; numbers within `tolerance`, infinities and nan equal."""
    if isinstance(expected, Mapping):
        problems = []
        for name, value in expected.items():
            here = f"{path}.{name}" if path else name
            if not isinstance(actual, Mapping) or name not in actual:
                problems.append(f"{here}: this kind of case computes no such value")
            else:
                problems += compare(value, actual[name], tolerance, here)
        return problems
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return [f"{path}: expected {_short(expected)}, got {_short(actual)}"]
        problems = []
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            problems += compare(one, other, tolerance, f"{path}[{index}]")
        return problems
    return (
        []
        if _same(expected, actual, tolerance)
        else [f"{path}: expected {_short(expected)}, got {_short(actual)}"]
    )


def _same(expected: Any, actual: Any, tolerance: float) -> bool:
    if expected is None or actual is None:
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    one, other = float(expected), float(actual)
    if math.isnan(one) or math.isinf(one) or math.isnan(other) or math.isinf(other):
        return one == other or (math.isnan(one) and math.isnan(other))
    return abs(one - other) <= tolerance


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _compare_expected(expected: Mapping[str, Any], values: Values, tolerance: float) -> list[str]:
    plain = {name: value for name, value in expected.items() if name != "nonzero_grad_rows"}
    problems = compare(plain, values, tolerance)
    if "nonzero_grad_rows" in expected:
        problems += _compare_nonzero_rows(expected, values, tolerance)
    if values.get("_head") is not None and "grad_logits" in expected:
        through_head = compare(expected["grad_logits"], values["_head"], tolerance, "grad_logits")
        problems += [f"through the chunked head: {problem}" for problem in through_head]
    return problems


def _compare_nonzero_rows(
    expected: Mapping[str, Any], values: Values, tolerance: float
) -> list[str]:
    """No gradient outside the expected rows, however tiny; none missing that could be seen."""
    wanted = {tuple(pair) for pair in expected["nonzero_grad_rows"]}
    found = {tuple(pair) for pair in values["nonzero_grad_rows"]}
    problems = [f"gradient in row {list(pair)}" for pair in sorted(found - wanted)]
    for i, t in sorted(wanted - found):
        known = expected.get("grad_logits")
        if known is None or max(abs(float(g)) for g in known[i][t]) > tolerance:
            problems.append(f"no gradient in row {[i, t]}")
    return problems


def _defects(case: Mapping[str, Any], values: Values, tolerance: float) -> list[str]:
    problems = []
    for defect in case.get("must_not_equal") or []:
        field_path, value = defect["field"], defect["value"]
        if compare(value, _at(values, field_path), tolerance):
            continue
        # Where right and wrong lie closer together than the tolerance there is nothing to tell.
        if compare(value, _at(case["expected"], field_path), tolerance):
            problems.append(f"{field_path} has the value of a defect: {defect.get('why')}")
    return problems


def _at(values: Any, path: str) -> Any:
    """The value at a path such as counts.action[1] or grad_logprobs[0][1]."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        values = values[name] if name else values[int(index)]
    return values


if __name__ == "__main__":
    sys.exit(main())
