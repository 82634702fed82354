"""The check against a second, slower reading of the definitions, on random files of the format."""

from __future__ import annotations

import math
import statistics
from random import Random
from typing import Any

import pytest

from training.check import check_document

ENV_NORMS = (
    "full_observation_tokens",
    "selected_tokens",
    "global_tokens",
    "max_seq_len",
    "nonempty_sequence_mean",
    "raw_sum",
)
PG_NORMS = ("sequence_mean", "token_mean", "max_seq_len")


def random_input(random: Random) -> dict[str, Any]:
    rollouts = []
    for _ in range(random.randint(1, 5)):
        roles = "".join(random.choice("AEWCSPE") for _ in range(random.randint(0, 9)))
        logprobs = [-random.uniform(0.05, 3.0) for _ in roles]
        stale = [value + random.uniform(-0.5, 0.5) for value in logprobs]
        rollouts.append(
            {
                "group": random.choice("ab"),
                "reward": random.choice([0.0, 0.3, 1.0]),
                "status": random.choice(["ok", "ok", "truncated", "pad"]),
                "roles": roles,
                "logprobs": logprobs,
                "old_logprobs": random.choice([None, stale]),
            }
        )
    order = list(range(len(rollouts)))
    random.shuffle(order)
    half = len(order) // 2
    return {
        "rollouts": rollouts,
        "env_norm": random.choice(ENV_NORMS),
        "env_eps": random.choice([0.0, 1e-3]),
        "pg_norm": random.choice(PG_NORMS),
        "max_seq_len": 12,
        "advantage": {"std": random.random() < 0.5, "eps": 1e-6},
        "clip": {"low": 0.2, "high": random.choice([0.2, 0.28])},
        "use_rl": random.random() < 0.8,
        "env_target": random.choice(["env_only", "all"]),
        "cut": random.choice([None, None, 4]),
        "max_env_tokens_per_observation": random.choice([None, 1, 2]),
        "splits": [[[[i] for i in order]], [[order[:half]], [order[half:]]]],
        "lambda": random.choice([0.0, 0.05, 0.5]),
    }


def sets_of(row: dict[str, Any], given: dict[str, Any]) -> dict[str, list[int]]:
    """Target positions by set, straight from the words of the definition."""
    if row["status"] == "pad":
        return {"action": [], "env_target": [], "observation": []}
    roles = row["roles"] if given["cut"] is None else row["roles"][: given["cut"]]
    observation = [t for t, role in enumerate(roles) if role in "WE"]
    runs: list[list[int]] = []
    for t in observation:
        if runs and runs[-1][-1] == t - 1:
            runs[-1].append(t)
        else:
            runs.append([t])
    wanted = "WE" if given["env_target"] == "all" else "E"
    cap = given["max_env_tokens_per_observation"]
    return {
        "action": [t for t, role in enumerate(roles) if role == "A"],
        "env_target": [t for run in runs for t in [u for u in run if roles[u] in wanted][:cap]],
        "observation": observation,
    }


def advantages_of(given: dict[str, Any]) -> list[float | None]:
    result: list[float | None] = []
    for row in given["rollouts"]:
        if row["status"] == "pad":
            result.append(None)
            continue
        rewards = [
            other["reward"]
            for other in given["rollouts"]
            if other["group"] == row["group"] and other["status"] != "pad"
        ]
        is_alone = len(rewards) == 1
        mean = 0.0 if is_alone else statistics.fmean(rewards)
        spread = 1.0 if is_alone else statistics.stdev(rewards)
        scale = spread + given["advantage"]["eps"] if given["advantage"]["std"] else 1.0
        result.append((row["reward"] - mean) / scale)
    return result


def expected_of(given: dict[str, Any]) -> dict[str, Any]:
    rows, lam, length = given["rollouts"], given["lambda"], given["max_seq_len"]
    sets = [sets_of(row, given) for row in rows]
    size = {name: [len(s[name]) for s in sets] for name in ("action", "env_target", "observation")}
    b = sum(row["status"] != "pad" for row in rows)
    eps = given["env_eps"]

    def floor(n: int) -> float:
        return n + eps if eps > 0 else max(n, 1)

    policy, env = 0.0, 0.0
    grads = [[0.0] * len(row["roles"]) for row in rows]
    for i, (row, advantage) in enumerate(zip(rows, advantages_of(given), strict=True)):
        per_row = b * max(size["action"][i], 1)
        d = {"sequence_mean": per_row, "token_mean": max(sum(size["action"]), 1)}.get(
            given["pg_norm"], b * length
        )
        for t in sets[i]["action"] if given["use_rl"] else []:
            assert advantage is not None
            old = row["logprobs"][t] if row["old_logprobs"] is None else row["old_logprobs"][t]
            ratio = math.exp(row["logprobs"][t] - old)
            low, high = 1 - given["clip"]["low"], 1 + given["clip"]["high"]
            plain, clipped = ratio * advantage, min(max(ratio, low), high) * advantage
            policy -= min(plain, clipped) / d
            grads[i][t] -= plain / d if plain <= clipped else 0.0
        d = {
            "full_observation_tokens": b * floor(size["observation"][i]),
            "selected_tokens": b * floor(size["env_target"][i]),
            "global_tokens": floor(sum(size["env_target"])),
            "max_seq_len": b * length,
            "nonempty_sequence_mean": sum(n > 0 for n in size["env_target"])
            * size["env_target"][i],
            "raw_sum": 1,
        }[given["env_norm"]]
        for t in sets[i]["env_target"] if lam else []:
            env -= row["logprobs"][t] / d
            grads[i][t] -= lam / d
    return {
        "batch_size": b,
        "counts": size,
        "advantages": advantages_of(given),
        "loss_pg": policy,
        "loss_env": env if lam else None,
        "loss": policy + lam * env,
        "grad_logprobs": grads,
    }


@pytest.mark.parametrize("seed", range(4))
def test_random_files_pass(seed: int) -> None:
    random = Random(seed)
    cases = []
    for number in range(40):
        given = random_input(random)
        checks = ["finite", "split_invariant", "linear_in_lambda"]
        if given["lambda"] == 0.0:
            checks = ["finite", "lambda_zero_bitwise", "env_path_not_executed"]
        cases.append(
            {
                "id": str(number),
                "kind": "objective",
                "input": given,
                "expected": expected_of(given),
                "checks": checks,
            }
        )
    problems = [report for report in check_document({"cases": cases}) if report.problems]
    assert problems == []


def random_logits_input(random: Random) -> dict[str, Any]:
    """The same from logits and ids; roles run over tokens, the first of which is no target."""
    given = random_input(random)
    given["policy_temperature"] = random.choice([1.0, 0.7])
    given["env_temperature"] = random.choice([1.0, 1.3])
    given["sequences"] = []
    for row in given.pop("rollouts"):
        roles = f"C{row['roles']}"
        given["sequences"].append(
            {
                "group": row["group"],
                "reward": row["reward"],
                "status": row["status"],
                "roles": roles,
                "token_ids": [random.randrange(5) for _ in roles],
                "logits": [[random.uniform(-2, 2) for _ in range(5)] for _ in roles],
                "old_logprobs": row["old_logprobs"],
            }
        )
    return given


def expected_from_logits(given: dict[str, Any]) -> dict[str, Any]:
    rollouts, softmax, temperatures = [], [], []
    for row in given["sequences"]:
        logprobs, chances, scales = [], [], []
        for t, wanted in enumerate(row["token_ids"][1:]):
            is_action = row["roles"][t + 1] == "A"
            scale = given["policy_temperature" if is_action else "env_temperature"]
            powers = [math.exp(value / scale) for value in row["logits"][t]]
            chances.append([power / math.fsum(powers) for power in powers])
            scales.append(scale)
            logprobs.append(math.log(chances[-1][wanted]))
        rollouts.append({**row, "roles": row["roles"][1:], "logprobs": logprobs})
        softmax.append(chances)
        temperatures.append(scales)
    expected = expected_of({**given, "rollouts": rollouts})
    slopes = expected.pop("grad_logprobs")
    expected["grad_logits"] = [
        [
            *(
                [
                    slopes[i][t] / temperatures[i][t] * ((v == row["token_ids"][t + 1]) - p)
                    for v, p in enumerate(chances)
                ]
                for t, chances in enumerate(softmax[i])
            ),
            [0.0] * 5,
        ]
        for i, row in enumerate(given["sequences"])
    ]
    return expected


@pytest.mark.parametrize("seed", range(2))
def test_random_files_of_logits_pass(seed: int) -> None:
    random = Random(seed)
    cases = []
    for number in range(20):
        given = random_logits_input(random)
        checks = ["finite", "split_invariant", "rows_sum_to_zero"]
        if given["lambda"] == 0.0:
            checks += ["lambda_zero_bitwise", "env_path_not_executed"]
        cases.append(
            {
                "id": str(number),
                "kind": "logits",
                "input": given,
                "expected": expected_from_logits(given),
                "checks": checks,
            }
        )
    problems = [report for report in check_document({"cases": cases}) if report.problems]
    assert problems == []
