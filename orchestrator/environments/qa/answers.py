"""Questions with reference answers, and when a reply is one of them.

The comparison is strict where leniency can be farmed: a number counts only where the reply holds
exactly one (or as the last one, if the author says so), a letter likewise. So a reply that lists
everything earns nothing. Runs of white space always count as one blank; what else is forgiven is
the author's choice (`ignore`).

Patterns are the author's, texts the agent's. Both together can take a backtracking engine hours,
hence `regex`, which has a time limit; striking it is an error of the task, not a verdict.
"""

from __future__ import annotations

import json
import math
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any, get_args
from typing import Literal as L

import regex

Match = L["exact", "contains", "number", "regex", "choice", "json"]
Ignore = L["case", "punctuation", "articles", "accents"]
Take = L["only", "last"]

MATCHES: tuple[str, ...] = get_args(Match)
IGNORES: tuple[str, ...] = get_args(Ignore)
TAKES: tuple[str, ...] = get_args(Take)
MAX_ANSWERS = 200
REGEX_LIMIT_S = 0.5
_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+|(?=\.\d))"
    r"(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?!\w|\.\d)"
)
"""No part of a word (`x2`, `2nd`); with thousands separators."""
_FENCE = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_LETTER = re.compile(
    r"""\(([A-Za-z])\)            # (b)
      | \b([A-Z])(?=[.):])       # B) and B.
      | \b([B-HJ-Z])\b           # B among words
      | \b(A)\W*$               # A and I are words too: only A, and only at the end
      | ^\W*([A-Za-z])\W*$       # nothing else
    """,
    re.VERBOSE,
)


class UngradableError(ValueError):
    """The author's pattern took too long on this reply: no verdict is possible."""


@dataclass(frozen=True)
class QaTask:
    """One question. Everything but key and prompt stays in the environment's server."""

    key: str
    prompt: str
    answers: tuple[str, ...]
    """Each one is right by itself."""
    match: Match = "exact"
    tolerance: float = 0.0
    """Of `number` and of numbers in `json`: greatest absolute difference."""
    relative_tolerance: float = 0.0
    """The same as a share of the reference."""
    ignore: tuple[Ignore, ...] = ()
    """Of `exact` and `contains`."""
    take: Take = "only"
    """Of `number` and `choice`, where a reply holds several."""
    partial: bool = False
    """Of `json`: the share of the reference's fields that are right, instead of all or nothing."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> QaTask:
        """`ValueError` names the field and the fix."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(record) - known):
            raise ValueError(f"{unknown[0]}: unknown; accepts {', '.join(sorted(known))}")
        values = {name: value for name, value in record.items() if value is not None}
        task = cls(
            key=str(values.get("key", "")),
            prompt=str(values.get("prompt", "")),
            answers=_texts(values.get("answers"), "answers"),
            match=_one_of(values.get("match", "exact"), MATCHES, "match"),
            tolerance=_size(values.get("tolerance", 0), "tolerance"),
            relative_tolerance=_size(values.get("relative_tolerance", 0), "relative_tolerance"),
            ignore=tuple(
                _one_of(item, IGNORES, "ignore") for item in _texts(values.get("ignore"), "ignore")
            ),
            take=_one_of(values.get("take", "only"), TAKES, "take"),
            partial=_flag(values.get("partial", False), "partial"),
        )
        task._check_answers()
        return task

    def as_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def _check_answers(self) -> None:
        if not 1 <= len(self.answers) <= MAX_ANSWERS:
            raise ValueError(f"answers: {len(self.answers)} given; accepts 1 to {MAX_ANSWERS}")
        for answer in self.answers:
            if self.match == "number" and number_of(answer) is None:
                raise ValueError(f"answers: {answer[:80]!r} is not a number")
            if self.match == "choice" and not re.fullmatch("[A-Z]", answer):
                raise ValueError(f"answers: {answer[:80]!r} is not one letter from A to Z")
            if self.match == "json" and json_of(answer) is _NO_JSON:
                raise ValueError(f"answers: {answer[:80]!r} is not JSON")
            if self.match == "regex":
                try:
                    regex.compile(answer)
                except regex.error as exc:
                    raise ValueError(f"answers: {answer[:80]!r} is no pattern: {exc}") from exc
            if self.match in ("exact", "contains") and not normalised(answer, self.ignore):
                raise ValueError(f"answers: {answer[:80]!r} is empty once normalised")


def grade(task: QaTask, reply: str) -> float:
    """From 0 to 1, the best over the reference answers. `UngradableError` see there."""
    return max(_grade_one(task, answer, reply) for answer in task.answers)


def _grade_one(task: QaTask, answer: str, reply: str) -> float:
    if task.match == "json":
        return _grade_json(task, answer, reply)
    return float(_IS_RIGHT[task.match](task, answer, reply))


def _is_exact(task: QaTask, answer: str, reply: str) -> bool:
    return normalised(reply, task.ignore) == normalised(answer, task.ignore)


def _is_contained(task: QaTask, answer: str, reply: str) -> bool:
    """As whole words: `art` is not in `party`."""
    wanted = re.escape(normalised(answer, task.ignore))
    return re.search(rf"(?<!\w){wanted}(?!\w)", normalised(reply, task.ignore)) is not None


def _is_number(task: QaTask, answer: str, reply: str) -> bool:
    wanted, given = number_of(answer), number_of(reply, take=task.take)
    return wanted is not None and given is not None and _is_close(task, wanted, given)


def _is_match(task: QaTask, answer: str, reply: str) -> bool:
    try:
        return regex.search(answer, reply, timeout=REGEX_LIMIT_S) is not None
    except TimeoutError as exc:
        raise UngradableError(
            f"the pattern of task {task.key} took more than {REGEX_LIMIT_S} s on this reply; "
            "simplify it (nested repetitions are slow)"
        ) from exc


def _is_choice(task: QaTask, answer: str, reply: str) -> bool:
    return letter_of(reply, take=task.take) == answer


_IS_RIGHT = {
    "exact": _is_exact,
    "contains": _is_contained,
    "number": _is_number,
    "regex": _is_match,
    "choice": _is_choice,
}


# --- reading a reply -----------------------------------------------------------------------------


def normalised(text: str, ignore: Sequence[str] = ()) -> str:
    text = unicodedata.normalize("NFC", text)
    if "case" in ignore:
        text = text.casefold()
    if "accents" in ignore:
        parts = unicodedata.normalize("NFD", text)
        text = "".join(c for c in parts if not unicodedata.combining(c))
    if "punctuation" in ignore:
        text = "".join(" " if _is_punctuation(c) else c for c in text)
    if "articles" in ignore:
        text = _ARTICLES.sub(" ", text)
    return " ".join(text.split())


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def number_of(text: str, *, take: Take = "only") -> Decimal | None:
    """The number in a text; None where there is none, or several and `take` is `only`.

    `1,234.5` is read with its thousands separators.
    """
    found = _NUMBER.findall(text)
    if not found or (take == "only" and len(found) > 1):
        return None
    try:
        return Decimal(found[-1].replace(",", ""))
    except InvalidOperation:
        return None


def letter_of(text: str, *, take: Take = "only") -> str | None:
    """The capital letter that a reply names: `B`, `(b)`, `B) Paris`, `The answer is B.`"""
    found = [(match[match.lastindex or 0]).upper() for match in _LETTER.finditer(text)]
    if not found or (take == "only" and len(set(found)) > 1):
        return None
    return found[-1]


_NO_JSON = object()


def json_of(text: str) -> Any:
    """The JSON value of a text or of its first code fence; `_NO_JSON` where there is none."""
    fenced = _FENCE.search(text)
    try:
        return json.loads(fenced[1] if fenced else text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _NO_JSON


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _grade_json(task: QaTask, answer: str, reply: str) -> float:
    wanted, given = json_of(answer), json_of(reply)
    if given is _NO_JSON:
        return 0.0
    if task.partial and isinstance(wanted, dict) and isinstance(given, dict) and wanted:
        right = sum(name in given and _is_same(task, wanted[name], given[name]) for name in wanted)
        # Fields that nobody asked for weigh as wrong ones, or guessing names would be free.
        return right / (len(wanted) + len(set(given) - set(wanted)))
    return float(_is_same(task, wanted, given))


def _is_same(task: QaTask, wanted: Any, given: Any) -> bool:
    """Deep equality; the order of keys does not matter, that of lists does; `true` is not 1."""
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    if isinstance(wanted, int | float) and isinstance(given, int | float):
        return _is_close(task, Decimal(str(wanted)), Decimal(str(given)))
    if isinstance(wanted, dict) and isinstance(given, dict):
        return wanted.keys() == given.keys() and all(
            _is_same(task, wanted[name], given[name]) for name in wanted
        )
    if isinstance(wanted, list) and isinstance(given, list):
        return len(wanted) == len(given) and all(
            _is_same(task, w, g) for w, g in zip(wanted, given, strict=True)
        )
    return type(wanted) is type(given) and bool(wanted == given)


def _is_close(task: QaTask, wanted: Decimal, given: Decimal) -> bool:
    allowed = max(Decimal(str(task.tolerance)), Decimal(str(task.relative_tolerance)) * abs(wanted))
    return abs(wanted - given) <= allowed


# --- reading a record ----------------------------------------------------------------------------


def _texts(value: Any, name: str) -> tuple[str, ...]:
    """A text alone counts as a list of one."""
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(item, str) for item in listed):
        raise ValueError(f"{name}: accepts a list of texts")
    return tuple(listed)


def _one_of(value: Any, accepted: Sequence[str], name: str) -> Any:
    if value not in accepted:
        raise ValueError(f"{name}: {str(value)[:40]!r}; accepts {', '.join(accepted)}")
    return value


def _size(value: Any, name: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {str(value)[:40]!r}; accepts a number from 0")
    return float(value)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: {str(value)[:40]!r}; accepts true or false")
    return value
