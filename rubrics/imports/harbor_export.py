"""Rubrics of ours as judge files of Harbor's Reward Kit; see `rubrics.imports.harbor`.

Judges alone have a form there: what code decides is Python over there. A rubric with groups becomes
a file for each and one that joins them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rubrics.imports.harbor_form import ALL, MEAN, NAME, REWARD_FILE, THRESHOLD, free_id, slug
from rubrics.imports.losses import Loss
from rubrics.imports.toml import written
from rubrics.kinds.judge import JUDGE
from rubrics.types import Aggregation, Criterion, Group, RubricSpec, Scope

_KNOWN_PARAMS = frozenset({"question", "scale", "min", "max", "anchors", "model", "repeats"})
_AGGREGATIONS: Mapping[Aggregation, str] = {
    Aggregation.WEIGHTED_MEAN: MEAN,
    Aggregation.ALL_PASS: ALL,
}


def from_spec(spec: RubricSpec) -> tuple[dict[str, str], tuple[Loss, ...]]:
    """Texts by file name, with what they do not say. No files where no judge is in it."""
    writing = _Writing()
    plain = RubricSpec(criteria=())
    for name in ("pass_threshold", "min_coverage"):
        if getattr(spec, name) != getattr(plain, name):
            writing.lose(name, "has no form in judge files")
    if not spec.groups:
        only_table = writing.file("judge", spec.criteria, spec.aggregation)
        return _texts({"judge.toml": only_table} if only_table else {}), tuple(writing.losses)
    tables: dict[str, Mapping[str, Any]] = {}
    parts = list(_parts(spec))
    for group, criteria in parts:
        table = writing.file(group.id, criteria, group.aggregation, group)
        if table:
            tables[f"{group.name if NAME.fullmatch(group.name) else group.id}.toml"] = table
    if len(tables) == 1 and spec.aggregation is Aggregation.ALL_PASS:
        ((name, alone),) = tables.items()
        only = parts[0][0]
        if only.aggregation is Aggregation.WEIGHTED_MEAN:
            scoring = {"aggregation": THRESHOLD, "threshold": only.threshold}
            return _texts({name: {**alone, "scoring": scoring}}), tuple(writing.losses)
    if tables:
        tables[REWARD_FILE] = _reward(spec, parts, tables, writing)
    return _texts(tables), tuple(writing.losses)


def _parts(spec: RubricSpec) -> Iterator[tuple[Group, tuple[Criterion, ...]]]:
    """What counts as one, in the rubric's order; a criterion without a group is a part."""
    groups = {group.id: group for group in spec.groups}
    seen: set[str] = set()
    for criterion in spec.criteria:
        if not criterion.group:
            threshold = criterion.threshold
            yield Group(criterion.id, weight=criterion.weight, threshold=threshold), (criterion,)
        elif criterion.group not in seen:
            seen.add(criterion.group)
            members = tuple(c for c in spec.criteria if c.group == criterion.group)
            yield groups[criterion.group], members


def _reward(
    spec: RubricSpec,
    parts: Sequence[tuple[Group, tuple[Criterion, ...]]],
    tables: dict[str, Mapping[str, Any]],
    writing: _Writing,
) -> Mapping[str, Any]:
    """The file that joins the others; completes those that count as passed below 1."""
    reward: dict[str, Any] = {"name": "reward", "aggregation": _aggregation(spec, writing)}
    for group, _ in parts:
        name = f"{group.name if NAME.fullmatch(group.name) else group.id}.toml"
        if spec.aggregation is not Aggregation.ALL_PASS or name not in tables:
            continue
        if group.aggregation is Aggregation.WEIGHTED_MEAN and group.threshold < 1.0:
            scoring = {"aggregation": THRESHOLD, "threshold": group.threshold}
            tables[name] = {**tables[name], "scoring": scoring}
    return {"reward": [reward]}


def _aggregation(spec: RubricSpec, writing: _Writing) -> str:
    if spec.aggregation not in _AGGREGATIONS:
        writing.lose("aggregation", f"{spec.aggregation} has no form in judge files")
    return _AGGREGATIONS.get(spec.aggregation, MEAN)


def _texts(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: written(table) for name, table in tables.items()}


@dataclass
class _Writing:
    losses: list[Loss] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def lose(self, at: str, why: str) -> None:
        self.losses.append(Loss(at, why))

    def file(
        self,
        at: str,
        criteria: Sequence[Criterion],
        aggregation: Aggregation,
        group: Group | None = None,
    ) -> dict[str, Any]:
        """Empty where no judge is among them."""
        judges = [c for c in criteria if c.kind == JUDGE.name]
        for criterion in criteria:
            if criterion.kind != JUDGE.name:
                why = f"kind {criterion.kind} has no form in judge files: it is Python there"
                self.lose(criterion.id, why)
        if not judges:
            return {}
        judge = self._judge(judges)
        if group is not None and group.weight != 1:
            judge["weight"] = float(group.weight)
        if aggregation not in _AGGREGATIONS:
            self.lose(f"{at}.aggregation", f"{aggregation} has no form in judge files")
        is_all = aggregation is Aggregation.ALL_PASS
        names: set[str] = set()
        table: dict[str, Any] = {"judge": judge} if judge else {}
        table["criterion"] = [self._criterion(c, is_all, names) for c in judges]
        if is_all:
            table["scoring"] = {"aggregation": ALL}
        return table

    def _judge(self, judges: Sequence[Criterion]) -> dict[str, Any]:
        """What one file's criteria share: that of the first."""
        first = judges[0].params
        table: dict[str, Any] = {}
        if first.get("model"):
            table["judge"] = first["model"]
        if first.get("repeats", 1) > 1:
            table["samples"] = int(first["repeats"])
            self.lose(f"{judges[0].id}.repeats", "samples count by their median there")
        for other in judges[1:]:
            for name in ("model", "repeats"):
                if other.params.get(name) != first.get(name):
                    self.lose(
                        f"{other.id}.{name}", "one file has one judge; the first one's counts"
                    )
        return table

    def _criterion(self, criterion: Criterion, is_all: bool, names: set[str]) -> dict[str, Any]:
        params = criterion.params
        table: dict[str, Any] = {"description": str(params["question"])}
        name = criterion.name if NAME.fullmatch(criterion.name) else ""
        if criterion.name and not name:
            self.lose(f"{criterion.id}.name", "names there are letters, digits, _ and -")
        if (name or slug(table["description"])) in names:
            name = criterion.id
            self.lose(f"{criterion.id}.name", "names are unique there; it is called by its id")
        names.add(name or slug(table["description"]))
        if criterion.id != free_id(name or slug(table["description"]), self.taken):
            table["id"] = criterion.id
        self.taken.add(criterion.id)
        if name:
            table["name"] = name
        table |= _scale(params)
        if criterion.weight != 1:
            table["weight"] = float(criterion.weight)
        if criterion.negative:
            table["negate"] = True
            self.lose(f"{criterion.id}.negative", "there it earns when it does not happen")
        self._note_others(criterion, is_all)
        return table

    def _note_others(self, criterion: Criterion, is_all: bool) -> None:
        passed_at = 1.0 if is_all and not criterion.negative else 0.5
        plain = Criterion(id="", kind="", threshold=passed_at)
        for name in ("required", "gate", "threshold", "applies"):
            if getattr(criterion, name) != getattr(plain, name):
                self.lose(f"{criterion.id}.{name}", "has no form in judge files")
        if criterion.scope not in (Scope.FINAL_ANSWER, Scope.TRAJECTORY):
            self.lose(f"{criterion.id}.scope", "has no form in judge files")
        for name, value in criterion.params.items():
            declared = next(param for param in JUDGE.params if param.name == name)
            if name not in _KNOWN_PARAMS and value != declared.default:
                self.lose(f"{criterion.id}.{name}", "has no form in judge files")
        anchors = criterion.params.get("anchors")
        if anchors and not _is_levels(criterion.params):
            self.lose(f"{criterion.id}.anchors", "levels there are texts from 0 on, one for each")


def _scale(params: Mapping[str, Any]) -> dict[str, Any]:
    if params.get("scale", "binary") == "binary":
        return {}
    if _is_levels(params):
        return {"type": "rubric", "levels": [text for _, text in sorted(params["anchors"].items())]}
    low, high = params.get("min", 1), params.get("max", 5)
    if isinstance(low, int) and isinstance(high, int) and low == 1 and high >= 2:
        return {"type": "likert", "points": high}
    return {"type": "numeric", "min": float(low), "max": float(high)}


def _is_levels(params: Mapping[str, Any]) -> bool:
    """Whether every whole number from 0 to the maximum has its text, in order."""
    anchors = params.get("anchors") or {}
    low, high = params.get("min", 1), params.get("max", 5)
    if params.get("scale") != "scale" or low != 0 or high != int(high) or not 1 <= high <= 9:
        return False
    return sorted(anchors) == [str(i) for i in range(int(high) + 1)] and all(
        text.strip() for text in anchors.values()
    )
