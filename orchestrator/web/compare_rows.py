"""Rows of the comparison pages as their templates draw them: cells, texts, steps side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.environments.authoring.diff import Piece, pieces
from orchestrator.runs.comparison.reading import RolloutText, Side
from orchestrator.runs.comparison.steps import Move, Row, RowKind, Stretch
from orchestrator.runs.comparison.table import Cell, TaskRow
from orchestrator.runs.models import Rollout
from orchestrator.web.colours import colour_of
from orchestrator.web.compare_cards import Criterion, look_of
from orchestrator.web.comparing import Options
from orchestrator.web.rubric import criteria_of

STEPS_SHOWN = 2_000
TEXT_SHOWN = 4_000
"""Characters of one text beside another; the trace has the rest."""


@dataclass(frozen=True)
class Head:
    """A side at the top of its column."""

    side: Side
    colour: int
    """Of the run, in every table and chart; the baseline has the text colour."""
    is_base: bool
    pin_url: str
    """The same page with this side as the baseline."""
    drop_url: str
    """Without it; empty where too few would be left."""
    parts: Sequence[tuple[str, str]]
    """Harnesses of a run that had several: name and the page with them apart."""


def heads(sides: Sequence[Side], options: Options) -> list[Head]:
    tokens = [side.token for side in sides]
    found = []
    for at, side in enumerate(sides):
        others = tuple(token for token in tokens if token != side.token)
        apart = [f"{side.run.pk}.{version.pk}" for version in side.harnesses]
        found.append(
            Head(
                side=side,
                colour=colour_of(side.run.pk).slot,
                is_base=at == 0,
                pin_url=options.link(tokens=(side.token, *others)),
                drop_url=options.link(tokens=others) if len(tokens) > 2 else "",
                parts=[("one by one", options.link(tokens=tuple(dict.fromkeys([*apart, *others]))))]
                if len(apart) > 1 and not side.is_part
                else [],
            )
        )
    return found


def criteria_of_sides(sides: Sequence[Side]) -> list[Criterion]:
    """Of all sides' rubrics, in order of first appearance; notes where a definition differs."""
    found: dict[str, Criterion] = {}
    specs: dict[str, Any] = {}
    for side in sides:
        version = side.run.rubric_version
        raw = {c.get("id"): c for c in version.spec.get("criteria") or [] if isinstance(c, dict)}
        for criterion in criteria_of(version.spec):
            own = found.get(criterion["id"])
            if own is None:
                found[criterion["id"]] = Criterion(
                    criterion["id"], criterion["name"], criterion["negative"]
                )
                specs[criterion["id"]] = raw.get(criterion["id"])
            elif raw.get(criterion["id"]) != specs[criterion["id"]]:
                found[own.id] = replace(own, note=f"defined differently in {version}")
    return list(found.values())


@dataclass(frozen=True)
class DrawnCell:
    side: int
    cell: Cell
    look: str
    delta: float | None
    rollout: int | None
    """The first attempt."""
    base_rollout: int | None
    text: RolloutText | None = None
    diff: Sequence[Piece] | None = None

    @property
    def attempts(self) -> str:
        n = len(self.cell.scores)
        return f"{self.cell.passed}/{n}" if n > 1 else ""


@dataclass(frozen=True)
class DrawnRow:
    row: TaskRow
    prompt: str
    cells: Sequence[DrawnCell]

    @property
    def pair(self) -> tuple[int, int] | None:
        """The two rollouts that the row opens: the baseline's, and that of the side which moved
        most."""
        base = self.cells[0].rollout
        if base is None:
            return None
        others = [cell for cell in self.cells[1:] if cell.rollout is not None]
        if not others:
            return None
        most = max(others, key=lambda cell: abs(cell.delta or 0.0))
        return (base, most.rollout) if most.rollout is not None else None


def drawn(
    rows: Sequence[TaskRow],
    prompts: Mapping[int, str],
    texts: Mapping[int, RolloutText],
    *,
    is_word_diff: bool,
) -> list[DrawnRow]:
    found = []
    for row in rows:
        firsts = [cell.facts[0].rollout if cell.facts else None for cell in row.cells]
        base = firsts[0]
        base_text = texts.get(base) if base is not None else None
        cells = []
        for side, (cell, rollout) in enumerate(zip(row.cells, firsts, strict=True)):
            text = texts.get(rollout) if rollout is not None else None
            cells.append(
                DrawnCell(
                    side=side,
                    cell=cell,
                    look=look_of(row, side),
                    delta=row.deltas[side],
                    rollout=rollout,
                    base_rollout=base,
                    text=text,
                    diff=pieces(_cut(base_text.answer), _cut(text.answer))
                    if is_word_diff and side and base_text and text
                    else None,
                )
            )
        prompt = next((prompts[r] for r in firsts if r is not None and r in prompts), "")
        found.append(DrawnRow(row, prompt, cells))
    return found


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}…"


# --- two rollouts -----------------------------------------------------------------------------


def notes_of(left: Rollout, right: Rollout) -> list[str]:
    """What makes the two hard to compare."""
    notes = []
    if left.pk == right.pk:
        notes.append("Both sides are the same rollout.")
    elif (left.run.environment_version.environment_id, left.task.key) != (
        right.run.environment_version.environment_id,
        right.task.key,
    ):
        notes.append(f"Different tasks: {left.task.key} and {right.task.key}.")
    elif left.task.prompt != right.task.prompt:
        notes.append("The task has another prompt in the other version of the environment.")
    if left.run.rubric_version_id != right.run.rubric_version_id:
        notes.append(
            f"Graded by {left.run.rubric_version} and by {right.run.rubric_version}: "
            "scores follow different rules."
        )
    for side in (left, right):
        if side.state in ("pending", "running", "judging"):
            notes.append(f"Rollout {side.pk} is not at its end; more steps may come.")
    return notes


@dataclass(frozen=True)
class VerdictRow:
    name: str
    is_negative: bool
    left: Any
    right: Any

    @property
    def delta(self) -> float | None:
        if self.left is None or self.right is None:
            return None
        if self.left.value is None or self.right.value is None:
            return None
        return float(self.right.value - self.left.value)


def verdict_rows(left: Rollout, right: Rollout) -> list[VerdictRow]:
    """Criteria of either side."""
    mine = {verdict.criterion: verdict for verdict in left.verdicts.all()}
    theirs = {verdict.criterion: verdict for verdict in right.verdicts.all()}
    negatives = {
        criterion["id"]
        for side in (left, right)
        for criterion in criteria_of(side.run.rubric_version.spec)
        if criterion["negative"]
    }
    return [
        VerdictRow(
            (mine.get(key) or theirs[key]).name, key in negatives, mine.get(key), theirs.get(key)
        )
        for key in dict.fromkeys([*mine, *theirs])
    ]


@dataclass(frozen=True)
class Text:
    text: str
    n_hidden: int
    diff: Sequence[Piece] | None = None


@dataclass(frozen=True)
class DrawnMove:
    move: Move
    call: Text
    result: Text


@dataclass(frozen=True)
class DrawnStep:
    index: int
    kind: RowKind
    left: DrawnMove | None
    right: DrawnMove | None

    @property
    def words(self) -> str:
        return {
            RowKind.SAME: "same",
            RowKind.RESULT: "same call, another result",
            RowKind.CALL: "another call",
            RowKind.LEFT: "only left",
            RowKind.RIGHT: "only right",
        }[self.kind]


@dataclass(frozen=True)
class DrawnStretch:
    is_folded: bool
    steps: Sequence[DrawnStep]


def drawn_stretches(found: Sequence[Stretch]) -> list[DrawnStretch]:
    return [
        DrawnStretch(each.is_folded, [_step(at, row) for at, row in each.rows]) for each in found
    ]


def _step(index: int, row: Row) -> DrawnStep:
    left, right = row.left, row.right
    marked = left is not None and right is not None and row.kind in (RowKind.RESULT, RowKind.CALL)
    return DrawnStep(
        index,
        row.kind,
        _drawn_move(left) if left else None,
        _drawn_move(right, left if marked else None) if right else None,
    )


def _drawn_move(move: Move, base: Move | None = None) -> DrawnMove:
    return DrawnMove(
        move,
        _text(move.call, base.call if base else None),
        _text(move.result, base.result if base else None),
    )


def _text(text: str, base: str | None) -> Text:
    shown = text[:TEXT_SHOWN]
    diff = None
    if base is not None and base and text and base != text:
        diff = pieces(base[:TEXT_SHOWN], shown)
    return Text(shown, len(text) - len(shown), diff)


def kind_counts(rows: Sequence[Row]) -> Mapping[str, int]:
    counts = Counter(row.kind.value for row in rows)
    return {kind.value: counts[kind.value] for kind in RowKind}
