"""What a healthy training looks like, chart by chart: a sentence, and a mark for what there is.

Pure. A mark is green, amber or red, or grey while there is too little to say; each comes with the
reason in words, since colour alone says nothing. Marks look at the newest steps; the alarms that
pause a training are those of `training.alarms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

WINDOW = 3
Steps = Sequence[Mapping[str, Any]]


class Mark(StrEnum):
    """How a chart looks."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    GREY = "grey"
    """Too little to say."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A mark and why."""

    mark: Mark
    reason: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One quantity of the board."""

    key: str
    title: str
    unit: str
    healthy: str
    """What it looks like when all is well, in one sentence."""
    value: Callable[[Mapping[str, Any]], float | None]
    judge: Callable[[Sequence[float], Steps], Judged]
    """Of the finite values, oldest first, and all steps."""
    is_sparse: bool = False
    """Measured at some steps only: where it is missing there is no gap."""
    top: float | None = None


def number(metrics: Mapping[str, Any], *keys: str) -> float | None:
    """The first of these that is a number; NaN and infinity are numbers."""
    for key in keys:
        value = metrics.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _plain(*keys: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda metrics: number(metrics, *keys)


def _share(part: str, whole: str) -> Callable[[Mapping[str, Any]], float | None]:
    def value(metrics: Mapping[str, Any]) -> float | None:
        n = number(metrics, whole)
        share = number(metrics, part)
        return None if not n or share is None else share / n

    return value


def _rises(values: Sequence[float], _: Steps) -> Judged:
    if len(values) < 2 * WINDOW:
        return Judged(Mark.GREY, "too few steps to say")
    first, last = mean(values[:WINDOW]), mean(values[-WINDOW:])
    best = max(mean(values[i : i + WINDOW]) for i in range(len(values) - WINDOW + 1))
    if last < best - 0.15:
        return Judged(Mark.RED, f"fell from {best:.2f} to {last:.2f}")
    if last <= first + 0.02 and last < 0.9:
        return Judged(Mark.AMBER, f"has not risen: {first:.2f}, now {last:.2f}")
    return Judged(Mark.GREEN, f"{first:.2f} at first, now {last:.2f}")


def _falls(values: Sequence[float], _: Steps) -> Judged:
    if len(values) < 2:
        return Judged(Mark.GREY, "too few evaluations to say")
    first, last = values[0], values[-1]
    if last > 1.1 * first:
        return Judged(Mark.RED, f"rose from {first:.2f} to {last:.2f} nats")
    if last > 0.98 * first:
        return Judged(Mark.AMBER, f"{first:.2f} at first, {last:.2f} now: nothing learned of it")
    return Judged(Mark.GREEN, f"{first:.2f} at first, now {last:.2f} nats")


def _below(amber: float, red: float, unit: str = "") -> Callable[[Sequence[float], Steps], Judged]:
    def judge(values: Sequence[float], _: Steps) -> Judged:
        if not values:
            return Judged(Mark.GREY, "not measured")
        last = mean(values[-WINDOW:])
        said = f"{last:.3g}{unit} in the newest steps"
        if last > red:
            return Judged(Mark.RED, f"{said}, above {red:g}{unit}")
        if last > amber:
            return Judged(Mark.AMBER, f"{said}, above {amber:g}{unit}")
        return Judged(Mark.GREEN, said)

    return judge


def _entropy(values: Sequence[float], _: Steps) -> Judged:
    if not values:
        return Judged(Mark.GREY, "not measured")
    first, last = mean(values[:WINDOW]), mean(values[-WINDOW:])
    if last < 0.02:
        return Judged(Mark.RED, f"{last:.3f} nats: the policy is certain of everything")
    if last < 0.1 or last < 0.5 * first:
        return Judged(Mark.AMBER, f"fell from {first:.2f} to {last:.2f} nats")
    return Judged(Mark.GREEN, f"{last:.2f} nats, {first:.2f} at first")


def _gradient(values: Sequence[float], steps: Steps) -> Judged:
    skipped = [int(s.get("step", 0)) for s in steps if s.get("is_skipped")]
    if skipped and steps and steps[-1].get("is_skipped"):
        return Judged(Mark.RED, f"not finite in step {skipped[-1]}, which was skipped")
    if skipped:
        return Judged(Mark.AMBER, f"skipped {len(skipped)}, the last one step {skipped[-1]}")
    if not values:
        return Judged(Mark.GREY, "not measured")
    usual = sorted(values)[len(values) // 2]
    if len(values) >= 2 * WINDOW and values[-1] > 10 * max(usual, 1e-12):
        return Judged(Mark.AMBER, f"{values[-1]:.3g}, ten times the usual {usual:.3g}")
    return Judged(Mark.GREEN, f"{values[-1]:.3g}, usually {usual:.3g}")


def _steady(values: Sequence[float], _: Steps) -> Judged:
    if len(values) < 2 * WINDOW:
        return Judged(Mark.GREY, "too few steps to say")
    usual, last = sorted(values)[len(values) // 2], mean(values[-WINDOW:])
    if last < 0.5 * usual:
        return Judged(Mark.AMBER, f"{last:.0f}, half of the usual {usual:.0f}")
    return Judged(Mark.GREEN, f"{last:.0f}, usually {usual:.0f}")


def _memory(values: Sequence[float], steps: Steps) -> Judged:
    halved = sum(int(step.get("halvings") or 0) for step in steps)
    if halved:
        return Judged(Mark.AMBER, f"ran out {halved} times, and the micro-batch was halved")
    if len(values) < 2 * WINDOW:
        return Judged(Mark.GREY, "too few steps to say")
    first, last = mean(values[1 : 1 + WINDOW]), mean(values[-WINDOW:])
    if last > 1.3 * first:
        return Judged(Mark.AMBER, f"grew from {first:,.0f} to {last:,.0f} MB")
    return Judged(Mark.GREEN, f"{last:,.0f} MB")


def _told(values: Sequence[float], _: Steps) -> Judged:
    if not values:
        return Judged(Mark.GREY, "not measured")
    return Judged(Mark.GREEN, f"{values[-1]:.3g} in the newest step")


def _balance(values: Sequence[float], _: Steps) -> Judged:
    if not values:
        return Judged(Mark.GREY, "not measured, or λ is 0")
    # On-policy the policy loss itself is near 0 while its gradient is not, so only a lasting and
    # large ratio is worth a word.
    middle = sorted(values[-2 * WINDOW :])[len(values[-2 * WINDOW :]) // 2]
    if middle > 100:
        return Judged(Mark.AMBER, f"{middle:.3g}: read it beside the reward")
    return Judged(Mark.GREEN, f"{middle:.3g} in the newest steps")


BOARD: tuple[Chart, ...] = (
    Chart(
        "reward",
        "Reward",
        "mean over the step's scored rollouts",
        "Rises, with noise from step to step; a fall that lasts three steps is a reason to look.",
        _plain("reward_mean"),
        _rises,
        top=1.0,
    ),
    Chart(
        "held_out",
        "Held-out score",
        "mean on tasks of the split select",
        "Rises with the reward. Where the reward rises and this does not, the policy learns the "
        "train tasks by heart.",
        _plain("held_out"),
        lambda values, steps: (
            _rises(values, steps)
            if len(values) >= 2 * WINDOW
            else Judged(Mark.GREY, f"{len(values)} evaluations so far")
            if len(values) < 2
            else Judged(
                Mark.GREEN if values[-1] >= values[0] else Mark.AMBER,
                f"{values[0]:.2f} at first, now {values[-1]:.2f}",
            )
        ),
        is_sparse=True,
        top=1.0,
    ),
    Chart(
        "pool_ce",
        "Environment CE, fixed pool",
        "nats per token at T = 1, on rollouts that nothing is trained on",
        "Falls under ECHO, hardly moves under GRPO alone; a rise means that the model forgets.",
        _plain("pool_ce"),
        _falls,
        is_sparse=True,
    ),
    Chart(
        "surprise",
        "Environment CE, this step",
        "nats per token on the step's own rollouts",
        "Falls. Together with fewer distinct observations and no more reward it is a collapse.",
        _plain("world_ce_selected_per_token"),
        _falls,
    ),
    Chart(
        "warning_ce",
        "Warning CE",
        "nats per token of the harness's remarks, fixed pool",
        "Follows the environment's CE; it is not trained on.",
        _plain("pool_warning_ce"),
        _told,
        is_sparse=True,
    ),
    Chart(
        "balance",
        "|λ·L env| ÷ |L pg|",
        "ratio of the two losses",
        "Of one order of magnitude. Far above, observations outweigh actions.",
        _plain("world_policy_loss_ratio"),
        _balance,
    ),
    Chart(
        "kl",
        "KL to the sampler",
        "k3 estimate, nats per action token",
        "Near 0 with one update per step; above 0.1 the policy has left its samples behind.",
        _plain("kl_k3"),
        _below(0.02, 0.1),
    ),
    Chart(
        "entropy",
        "Entropy",
        "nats per action token",
        "Sinks slowly. Below 0.1 siblings are copies, and groups without spread teach nothing.",
        _plain("entropy_mean", "entropy_sampled"),
        _entropy,
    ),
    Chart(
        "clip",
        "Clipped or far ratios",
        "share of action tokens",
        "A few per cent at most; more means steps too large or rollouts too old.",
        _plain("clip_share", "clip_fraction", "ratio_outside_share"),
        _below(0.05, 0.2),
    ),
    Chart(
        "zero_advantage",
        "Groups without spread",
        "share of the step's groups",
        "Below one half. Such groups teach the policy nothing, only the environment term.",
        _share("groups_without_spread", "groups"),
        _below(0.5, 0.8),
        top=1.0,
    ),
    Chart(
        "mismatch",
        "Sampler against trainer",
        "sd of the log-ratio",
        "About 4e-6 in fp32 and 0.06 in bf16; growth means that the two compute different models.",
        _plain("log_ratio_sd"),
        _below(0.1, 0.3),
    ),
    Chart(
        "gradient",
        "Gradient norm",
        "before clipping; a gap is a step that was skipped",
        "Of one order of magnitude. A gap is a gradient that was not finite.",
        _plain("grad_norm"),
        _gradient,
    ),
    Chart(
        "truncated",
        "Truncated rollouts",
        "share of the step's rollouts",
        "Few, and no more than at first: a rollout that is cut off has no fair reward.",
        _share("rollouts_truncated", "rollouts"),
        _below(0.2, 0.5),
        top=1.0,
    ),
    Chart(
        "staleness",
        "Policy age",
        "versions between sampler and trainer",
        "0 where sampling and training take turns; within the manifest's bound elsewhere.",
        _plain("staleness_max"),
        _told,
    ),
    Chart(
        "tokens_per_s",
        "Tokens per second",
        "trained tokens, by the clock",
        "Steady. A fall means another job on the same cores.",
        _plain("tokens_per_s"),
        _steady,
    ),
    Chart(
        "memory",
        "Memory of the trainer",
        "MB resident",
        "Flat after the first steps.",
        _plain("rss_mb"),
        _memory,
    ),
)


def sentence(judged: Sequence[tuple[Chart, Judged]]) -> Judged:
    """The board in one sentence: its worst mark, and what has it."""
    for mark, words in ((Mark.RED, "Needs a look"), (Mark.AMBER, "Mostly healthy, but")):
        found = [f"{c.title.lower()} {j.reason}" for c, j in judged if j.mark is mark]
        if found:
            return Judged(mark, f"{words}: {'; '.join(found[:3])}.")
    if any(j.mark is Mark.GREEN for _, j in judged):
        return Judged(Mark.GREEN, "Healthy as far as the charts say.")
    return Judged(Mark.GREY, "Too early to say.")
