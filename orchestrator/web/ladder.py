"""What the ladder shows of a climb: rows of rungs, harness differences, edits, curves."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.models import Comparison, Edit
from orchestrator.climbs.models import Climb, Rung
from orchestrator.climbs.queries import claim, rung_seconds
from orchestrator.web.figures import MINI, ClimbFigure, LineChart, climb_figure, line_chart


@dataclass(frozen=True)
class RungRow:
    rung: Rung
    name: str
    comparison: Comparison | None
    seconds: float | None
    is_live: bool
    why: str = ""
    """The decision that led to it."""

    @property
    def has_gain(self) -> bool:
        return self.comparison is not None and self.comparison.difference is not None


def rung_rows(rungs: Sequence[Rung], whys: Sequence[str] = ()) -> list[RungRow]:
    """`whys[i]`: the decision that led to rung i."""
    return [
        RungRow(
            rung=rung,
            name=rung.get_kind_display(),
            comparison=rung.comparison,
            seconds=rung_seconds(rung),
            is_live=rung.state == "running",
            why=whys[place] if place < len(whys) else "",
        )
        for place, rung in enumerate(rungs)
    ]


@dataclass(frozen=True)
class ClimbCard:
    climb: Climb
    headline: str
    mini: ClimbFigure


def climb_cards(climbs: Iterable[Climb]) -> list[ClimbCard]:
    """Of climbs whose rungs are loaded."""
    cards = []
    for climb in climbs:
        rungs = sorted(climb.rungs.all(), key=lambda rung: rung.index)
        names = [rung.get_kind_display() for rung in rungs]
        cards.append(ClimbCard(climb, claim(climb, rungs), climb_figure(rungs, names, MINI)))
    return cards


@dataclass(frozen=True)
class DiffLine:
    mark: str
    """`+`, `-`, `@` for a gap, or empty for a line that stayed."""
    text: str


@dataclass(frozen=True)
class Demonstration:
    id: str
    source: str
    messages: Sequence[Mapping[str, str]]
    is_new: bool


@dataclass(frozen=True)
class ComponentDiff:
    key: str
    word: str
    """added, removed, changed or unchanged."""
    lines: Sequence[DiffLine]
    demonstrations: Sequence[Demonstration]


def harness_diff(before: Mapping[str, str], after: Mapping[str, str]) -> list[ComponentDiff]:
    """Component by component, changed ones first. Demonstrations are whole dialogues."""
    diffs = [
        _component(key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
    ]
    return sorted(diffs, key=lambda diff: diff.word == "unchanged")


def _component(key: str, before: str | None, after: str | None) -> ComponentDiff:
    if before == after:
        word = "unchanged"
    elif before is None or not before.strip():
        word = "added"
    elif after is None or not after.strip():
        word = "removed"
    else:
        word = "changed"
    if key.startswith("demonstrations"):
        known = {demo.id for demo in demonstrations(before or "")}
        shown = [
            Demonstration(d.id, d.source, d.messages, d.id not in known)
            for d in demonstrations(after or "")
        ]
        return ComponentDiff(key, word, [], shown)
    return ComponentDiff(key, word, _diff_lines(before or "", after or ""), [])


def _diff_lines(before: str, after: str) -> list[DiffLine]:
    if before == after:
        return [DiffLine("", line) for line in after.splitlines()]
    lines: list[DiffLine] = []
    old, new = before.splitlines(), after.splitlines()
    for group in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_grouped_opcodes(3):
        if lines:
            lines.append(DiffLine("@", ""))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                lines += [DiffLine("", line) for line in old[a1:a2]]
                continue
            lines += [DiffLine("-", line) for line in old[a1:a2]]
            lines += [DiffLine("+", line) for line in new[b1:b2]]
    return lines


def demonstrations(text: str) -> list[Demonstration]:
    """Lines of demonstrations.jsonl; a line that cannot be read is left out of the dialogues."""
    found: list[Demonstration] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        messages = [
            {"role": str(m.get("role", "")), "content": str(m.get("content", ""))}
            for m in record.get("messages") or []
            if isinstance(m, dict)
        ]
        source = record.get("source")
        found.append(
            Demonstration(
                id=str(record.get("id", number)),
                source=source if isinstance(source, str) else json.dumps(source or ""),
                messages=messages,
                is_new=False,
            )
        )
    return found


@dataclass(frozen=True)
class EditRow:
    edit: Edit
    low: float | None
    high: float | None
    words: str
    """The edit's own text, for reading."""

    @property
    def is_screened(self) -> bool:
        return self.edit.effect_mean is not None


def edit_rows(edits: Sequence[Edit]) -> list[EditRow]:
    """Effects with their 95 % interval, mean ± 1.96 sd."""
    rows = []
    for edit in edits:
        mean, sd = edit.effect_mean, edit.effect_sd
        known = mean is not None and sd is not None
        rows.append(
            EditRow(
                edit=edit,
                low=mean - 1.96 * sd if known else None,  # type: ignore[operator]
                high=mean + 1.96 * sd if known else None,  # type: ignore[operator]
                words=edit_words(edit.data),
            )
        )
    return rows


def edit_words(data: Mapping[str, Any]) -> str:
    content = data.get("content")
    if not isinstance(content, str) or not content:
        return str(data.get("op", ""))
    dialogue = demonstrations(content.splitlines()[0]) if content.startswith("{") else []
    if dialogue and dialogue[0].messages:
        return "\n".join(f"{m['role']}: {m['content']}" for m in dialogue[0].messages)
    return content


@dataclass(frozen=True)
class StepRow:
    """One training step in the words of the page."""

    step: int
    reward: float | None
    n: int | None
    masked: int | None
    """Rollouts without a score, left out of the reward."""
    idle_groups: int | None
    """Groups whose rollouts all got the same reward: they teach the policy nothing."""
    loss: float | None
    policy: float | None
    environment: float | None
    nats: float | None
    gradient: float | None
    tokens_per_s: float | None
    seconds: float | None


def step_row(metrics: Mapping[str, Any], place: int) -> StepRow:
    """`place` counts from 1 and stands in for a missing step number."""

    def first(*keys: str) -> float | None:
        return next((v for key in keys if (v := _number(metrics.get(key))) is not None), None)

    def whole(*keys: str) -> int | None:
        value = first(*keys)
        return None if value is None else int(value)

    return StepRow(
        step=whole("step") or place,
        reward=first("reward_mean"),
        n=whole("reward_n", "n"),
        masked=whole("reward_masked", "masked"),
        idle_groups=whole("groups_without_spread"),
        loss=first("loss"),
        policy=first("policy_loss", "loss_pg"),
        environment=first("env_loss", "loss_env"),
        nats=first("world_ce_selected_per_token"),
        gradient=first("grad_norm"),
        tokens_per_s=first("tokens_per_s"),
        seconds=first("update_s", "seconds"),
    )


@dataclass(frozen=True)
class TrainingCurves:
    steps: Sequence[StepRow]
    total: int
    reward: LineChart
    surprise: LineChart
    sentence: str


def training_curves(steps: Sequence[Mapping[str, Any]], total: int = 0) -> TrainingCurves | None:
    """Mean reward and the environment's surprise (nats per selected token) over the steps."""
    if not steps:
        return None
    rows = [step_row(metrics, place) for place, metrics in enumerate(steps, start=1)]
    numbers = [row.step for row in rows]
    total = total or max((int(_number(step.get("total")) or 0) for step in steps), default=0)
    return TrainingCurves(
        steps=rows,
        total=total,
        reward=line_chart(numbers, [row.reward for row in rows], top=1.0, total_steps=total),
        surprise=line_chart(numbers, [row.nats for row in rows], total_steps=total),
        sentence=_training_sentence(rows),
    )


def _training_sentence(rows: Sequence[StepRow]) -> str:
    """What moved since the first step, and what taught nothing."""
    first, last = rows[0], rows[-1]
    parts = []
    if len(rows) > 1 and first.reward is not None and last.reward is not None:
        parts.append(f"Reward {first.reward:.2f} → {last.reward:.2f} in {len(rows)} steps.")
    if len(rows) > 1 and first.nats is not None and last.nats is not None:
        parts.append(f"Environment loss {first.nats:.2f} → {last.nats:.2f} nats per token.")
    if last.idle_groups:
        parts.append(f"In the last step {last.idle_groups} groups had no spread of reward.")
    masked = sum(row.masked or 0 for row in rows)
    if masked:
        parts.append(f"{masked} rollouts had no score and were left out of the reward.")
    return " ".join(parts)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
