"""Judge files of Harbor's Reward Kit to rubrics of ours.

A file becomes a rubric of judges; a folder of files a rubric of groups. Whatever is not the same
here is in the list of losses, with its file and field: fields without a meaning here are left out,
and settings that mean something else are carried over as the nearest thing there is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from rubrics.codec import ID, validate
from rubrics.errors import RubricInvalid
from rubrics.imports.harbor_form import (
    AGENTS,
    ALL,
    CRITERION_FIELDS,
    JUDGE_FIELDS,
    MEAN,
    NAME,
    REQUIRED,
    REWARD_FILE,
    THRESHOLD,
    free_id,
    nearest_weights,
    normal,
    slug,
    whole_weights,
)
from rubrics.imports.losses import Loss
from rubrics.imports.openenv import Imported
from rubrics.types import Aggregation, Criterion, Group, RubricSpec


def to_spec(files: Mapping[str, str]) -> Imported:
    """From texts by file name. Raises RubricInvalid for what is no judge file at all."""
    reading = _Reading()
    tables = {name: _parsed(name, text) for name, text in sorted(files.items())}
    reward = tables.pop(REWARD_FILE, None)
    parts = [_part(name.removesuffix(".toml"), table, reading) for name, table in tables.items()]
    if not parts:
        raise RubricInvalid("files: no judge file; one has [judge] and [[criterion]]")
    if len(parts) == 1 and reward is None:
        spec = _of_one(parts[0], reading)
    else:
        spec = _of_several(parts, reward or {}, reading)
    if reading.problems:
        raise RubricInvalid(*reading.problems)
    validate(spec)
    return Imported(spec, tuple(reading.losses))


@dataclass
class _Reading:
    losses: list[Loss] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    """Ids of criteria; they are unique in a rubric."""

    def lose(self, at: str, why: str) -> None:
        self.losses.append(Loss(at, why))

    def value(
        self, table: Mapping[str, Any], name: str, at: str, types: tuple[type, ...], default: Any
    ) -> Any:
        """The field, or a problem and the default."""
        found = table.get(name, default)
        is_flag = isinstance(found, bool) and bool not in types
        if is_flag or not isinstance(found, types):
            wanted = " or ".join(kind.__name__ for kind in types)
            self.problems.append(f"{at}.{name}: {found!r:.60}; accepts {wanted}")
            return default
        if isinstance(found, float) and not isfinite(found):
            self.problems.append(f"{at}.{name}: {found!r}; accepts finite numbers")
            return default
        return found


_NUMBER = (int, float)


@dataclass(frozen=True)
class _Part:
    """One judge file."""

    stem: str
    aggregation: str
    threshold: float
    weight: float
    criteria: tuple[Criterion, ...]


def _parsed(name: str, text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RubricInvalid(f"{name}: {error}") from error


# --- one file


def _part(stem: str, table: Mapping[str, Any], reading: _Reading) -> _Part:
    judge = reading.value(table, "judge", stem, (dict,), {})
    scoring = reading.value(table, "scoring", stem, (dict,), {})
    listed = reading.value(table, "criterion", stem, (list,), [])
    for name in sorted(set(table) - {"judge", "scoring", "criterion"}):
        reading.lose(f"{stem}.{name}", "unknown here")
    params = _judge(judge, f"{stem}.judge", reading)
    aggregation = normal(
        reading.value(scoring, "aggregation", f"{stem}.scoring", (str,), MEAN)
    )  # fmt: skip
    for name in sorted(set(scoring) - {"aggregation", "threshold"}):
        reading.lose(f"{stem}.scoring.{name}", "unknown here")
    found, weights = [], []
    for i, item in enumerate(listed):
        at = f"{stem}.criterion[{i}]"
        if not isinstance(item, dict):
            reading.problems.append(f"{at}: accepts a table")
            continue
        weight = float(reading.value(item, "weight", at, _NUMBER, 1.0))
        if weight <= 0:
            reading.lose(at, f"left out: a weight of {weight:g} has no form here")
            continue
        found.append(_criterion(item, at, params, aggregation, reading))
        weights.append(weight)
    if not found:
        reading.problems.append(f"{stem}.criterion: accepts a list of at least one that counts")
    wholes = _wholes(weights, f"{stem}.criterion.weight", reading)
    return _Part(
        stem=stem,
        aggregation=aggregation,
        threshold=float(reading.value(scoring, "threshold", f"{stem}.scoring", _NUMBER, 0.5)),
        weight=float(reading.value(judge, "weight", f"{stem}.judge", _NUMBER, 1.0)),
        criteria=tuple(replace(c, weight=w) for c, w in zip(found, wholes, strict=True)),
    )


def _judge(judge: Mapping[str, Any], at: str, reading: _Reading) -> dict[str, Any]:
    """Parameters of each of the file's criteria."""
    params: dict[str, Any] = {}
    model = reading.value(judge, "judge", at, (str,), "")
    if model in AGENTS:
        reading.lose(f"{at}.judge", f"{model} is no model endpoint; the project's judge is asked")
    elif model:
        params["model"] = model
    samples = reading.value(judge, "samples", at, (int,), 1)
    if samples > 1:
        params["repeats"] = samples
        reading.lose(f"{at}.samples", "repeats here count by their mean, not their median")
    for name in judge:
        if name not in ("judge", "samples", "weight"):
            reading.lose(f"{at}.{name}", JUDGE_FIELDS.get(name, "unknown here"))
    return params


def _criterion(
    item: Mapping[str, Any],
    at: str,
    params: Mapping[str, Any],
    aggregation: str,
    reading: _Reading,
) -> Criterion:
    known = {"description", "type", "name", "id", "points", "levels", "min", "max", "weight",
             "negate"}  # fmt: skip
    for name in item:
        if name not in known:
            reading.lose(f"{at}.{name}", CRITERION_FIELDS.get(name, "unknown here"))
    description = reading.value(item, "description", at, (str,), "")
    if "description" not in item:
        reading.problems.append(f"{at}.description: required")
    name = reading.value(item, "name", at, (str,), "")
    if name and not NAME.fullmatch(name):
        reading.problems.append(f"{at}.name: {name!r}; accepts letters, digits, _ and -")
    negative = bool(reading.value(item, "negate", at, (bool,), False))
    annotations = item.get("annotations")
    if isinstance(annotations, dict) and "negate" not in item:
        negative = "negative" in str(annotations.get("type", "")).lower()
    if negative:
        reading.lose(
            f"{at}.negate", "here it is subtracted when it happens, and earns nothing when not"
        )
    return Criterion(
        id=_id_of(item, name or slug(description), at, reading),
        kind="judge",
        name=name,
        params={"question": description, **_scale(item, at, reading), **params},
        negative=negative,
        threshold=1.0 if aggregation in (ALL, REQUIRED) and not negative else 0.5,
    )


def _id_of(item: Mapping[str, Any], otherwise: str, at: str, reading: _Reading) -> str:
    given = reading.value(item, "id", at, (str,), "")
    if given and ID.fullmatch(given) and given not in reading.taken:
        found = given
    else:
        found = free_id(given or otherwise, reading.taken)
        if given:
            reading.lose(f"{at}.id", f"is {found} here: a-z, 0-9, - and _, each id once")
    reading.taken.add(found)
    return str(found)


def _scale(item: Mapping[str, Any], at: str, reading: _Reading) -> dict[str, Any]:
    kind = reading.value(item, "type", at, (str,), "binary")
    if kind == "likert":
        points = reading.value(item, "points", at, (int,), 5)
        return {"scale": "scale", "min": 1, "max": points}
    if kind == "numeric":
        low = float(reading.value(item, "min", at, _NUMBER, 0.0))
        high = float(reading.value(item, "max", at, _NUMBER, 1.0))
        return {"scale": "scale", "min": low, "max": high}
    if kind == "rubric":
        levels = reading.value(item, "levels", at, (list,), [])
        if len(levels) < 2 or not all(isinstance(level, str) for level in levels):
            reading.problems.append(f"{at}.levels: accepts a list of at least two texts")
        anchors = {str(i): level for i, level in enumerate(levels)}
        return {"scale": "scale", "min": 0, "max": max(1, len(levels) - 1), "anchors": anchors}
    if kind != "binary":
        reading.problems.append(f"{at}.type: {kind!r}; accepts binary, likert, numeric, rubric")
    return {}


def _wholes(weights: Sequence[float], at: str, reading: _Reading) -> list[int]:
    found = whole_weights(weights) if weights else []
    if found is None:
        found = nearest_weights(weights)
        given = ", ".join(f"{weight:g}" for weight in weights)
        said = ", ".join(map(str, found))
        reading.lose(at, f"{given} are no proportions of 1 to 10; {said} are the nearest")
    return found


# --- how parts are joined


def _of_one(part: _Part, reading: _Reading) -> RubricSpec:
    if part.weight != 1:
        reading.lose(f"{part.stem}.judge.weight", "there is nothing beside it")
    if part.aggregation == THRESHOLD:
        group = Group(id=free_id(part.stem, set()), name=part.stem, threshold=part.threshold)
        return RubricSpec(
            criteria=tuple(replace(c, group=group.id) for c in part.criteria),
            aggregation=Aggregation.ALL_PASS,
            groups=(group,),
        )
    return RubricSpec(criteria=part.criteria, aggregation=_inner(part, reading))


def _of_several(
    parts: Sequence[_Part], table: Mapping[str, Any], reading: _Reading
) -> RubricSpec:  # fmt: skip
    outer, own_weights = _reward(table, reading)
    known = {part.stem for part in parts}
    for stem in sorted(set(own_weights) - known):
        reading.lose(f"reward.weights.{stem}", "no judge file of that name is there")
    weights = _wholes(
        [_counted(part, own_weights, reading) for part in parts], "reward.weights", reading
    )
    groups, criteria, taken = [], [], set[str]()
    for part, weight in zip(parts, weights, strict=True):
        id = free_id(part.stem, taken)
        taken.add(id)
        is_threshold = part.aggregation == THRESHOLD and outer is Aggregation.ALL_PASS
        inner = Aggregation.WEIGHTED_MEAN if is_threshold else _inner(part, reading)
        passed_at = part.threshold if is_threshold else 1.0
        groups.append(
            Group(
                id=id,
                name=part.stem,
                aggregation=inner,
                weight=weight,
                threshold=passed_at if outer is Aggregation.ALL_PASS else 0.5,
            )
        )
        criteria += [replace(c, group=id) for c in part.criteria]
    return RubricSpec(criteria=tuple(criteria), aggregation=outer, groups=tuple(groups))


def _counted(part: _Part, own_weights: Mapping[str, float], reading: _Reading) -> float:
    weight = own_weights.get(part.stem, part.weight)
    if weight > 0:
        return weight
    reading.lose(f"reward.weights.{part.stem}", f"{weight:g} has no form here; it counts 1")
    return 1.0


def _reward(
    table: Mapping[str, Any], reading: _Reading
) -> tuple[Aggregation, Mapping[str, float]]:  # fmt: skip
    listed = reading.value(table, "reward", REWARD_FILE, (list,), [])
    for stem in reading.value(table, "scoring", REWARD_FILE, (dict,), {}):
        reading.lose(f"reward.scoring.{stem}", "checks in Python are not carried over")
    for name in sorted(set(table) - {"reward", "scoring"}):
        reading.lose(f"reward.{name}", "unknown here")
    rewards = [item for item in listed if isinstance(item, dict)]
    chosen = next((r for r in rewards if r.get("name") == "reward"), (rewards or [{}])[0])
    for i, other in enumerate(rewards):
        if other is not chosen:
            reading.lose(f"reward.reward[{i}]", "a rubric has one score")
    for name in chosen:
        if name not in ("name", "aggregation", "threshold", "weights"):
            reading.lose(f"reward.{name}", "unknown here")
    if chosen.get("name", "reward") != "reward":
        reading.lose("reward.name", "the score of a rubric has no name")
    given = reading.value(chosen, "weights", "reward", (dict,), {})
    weights = {
        stem: float(reading.value(given, stem, "reward.weights", _NUMBER, 1.0)) for stem in given
    }
    aggregation = normal(reading.value(chosen, "aggregation", "reward", (str,), MEAN))
    if aggregation == ALL:
        return Aggregation.ALL_PASS, weights
    if aggregation != MEAN:
        reading.lose("reward.aggregation", f"{aggregation} is a weighted mean here")
    return Aggregation.WEIGHTED_MEAN, weights


def _inner(part: _Part, reading: _Reading) -> Aggregation:
    if part.aggregation == ALL:
        return Aggregation.ALL_PASS
    if part.aggregation == REQUIRED:
        reading.lose(
            f"{part.stem}.scoring.aggregation", "required-pass is all-pass here: all are required"
        )
        return Aggregation.ALL_PASS
    if part.aggregation != MEAN:
        reading.lose(
            f"{part.stem}.scoring.aggregation", f"{part.aggregation} is a weighted mean here"
        )
    return Aggregation.WEIGHTED_MEAN
