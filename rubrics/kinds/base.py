"""What a criterion kind is: its parameters, its scopes and the function that decides.

The parameters are declared rather than coded, so that the authoring page, the error messages
and the documentation say the same. A kind's `decide` returns a `Verdict`, or an awaitable of
one where it has to wait for something; it raises CriterionFailed where it cannot decide and
must never return a number in that case.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import regex

from rubrics.types import Criterion, Scope, Services, Transcript, Verdict

Decide = Callable[[Criterion, Transcript], Verdict]
DecideAsync = Callable[[Criterion, Transcript, Services], Awaitable[Verdict]]
DecideGroup = Callable[
    [Criterion, Mapping[str, Transcript], Services], Awaitable[Mapping[str, Verdict]]
]
"""Several rollouts of one task, by a name; a verdict for each."""


class ParamType(StrEnum):
    TEXT = "text"
    TEXTS = "list of texts"
    PATTERN = "regular expression"
    PATTERNS = "list of regular expressions"
    NUMBER = "number"
    COUNT = "whole number from 0"
    FLAG = "true or false"
    OBJECT = "object"
    JSON = "any JSON value"


@dataclass(frozen=True)
class Param:
    name: str
    type: ParamType
    about: str
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def accepts(self) -> str:
        return "one of " + ", ".join(self.choices) if self.choices else str(self.type)

    def is_accepted(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return _CHECKS[self.type](value)


@dataclass(frozen=True)
class Kind:
    name: str
    about: str
    decide: Decide | None = None
    decide_async: DecideAsync | None = None
    """Exactly one of the two is given."""
    decide_group: DecideGroup | None = None
    """For kinds that compare rollouts; `decide_async` then says that one alone is not enough."""
    params: tuple[Param, ...] = ()
    scopes: tuple[Scope, ...] = (Scope.FINAL_ANSWER,)
    negative: bool | None = None
    """Whether the criterion must be a negative one; None leaves it to the author."""
    check: Callable[[Mapping[str, Any]], list[str]] = field(default=lambda params: [])
    """Problems that concern several parameters together."""

    def param(self, criterion: Criterion, name: str) -> Any:
        """The criterion's value of a parameter, or the declared default."""
        declared = next(param for param in self.params if param.name == name)
        return criterion.params.get(name, declared.default)

    def problems(self, criterion: Criterion) -> list[str]:
        """What is wrong with a criterion of this kind; each line starts with the field."""
        found = []
        declared = {param.name: param for param in self.params}
        for name in criterion.params:
            if name not in declared:
                known = ", ".join(declared) or "none"
                found.append(f"params.{name}: unknown; {self.name} has {known}")
        for param in self.params:
            value = criterion.params.get(param.name)
            if value is None:
                if param.required:
                    found.append(f"params.{param.name}: required; accepts {param.accepts}")
                elif param.name in criterion.params and param.type is not ParamType.JSON:
                    found.append(f"params.{param.name}: null is not accepted; {param.accepts}")
            elif not param.is_accepted(value):
                found.append(f"params.{param.name}: {value!r} is not accepted; {param.accepts}")
        if criterion.scope not in self.scopes:
            known = ", ".join(self.scopes)
            found.append(f"scope: {criterion.scope} is not accepted; {self.name} has {known}")
        if self.negative is not None and criterion.negative is not self.negative:
            found.append(f"negative: must be {str(self.negative).lower()} for {self.name}")
        if self.decide_group is not None and criterion.gate:
            found.append("gate: must be false; a group is compared once all else is graded")
        return found or self.check(criterion.params)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        regex.compile(value)
    except (regex.error, RecursionError):
        return False
    return True


def _is_list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list | tuple) and len(value) > 0 and all(check(item) for item in value)
    )


_CHECKS: Mapping[ParamType, Callable[[Any], bool]] = {
    ParamType.TEXT: lambda value: isinstance(value, str),
    ParamType.TEXTS: _is_list_of(lambda item: isinstance(item, str)),
    ParamType.PATTERN: _is_pattern,
    ParamType.PATTERNS: _is_list_of(_is_pattern),
    ParamType.NUMBER: _is_number,
    ParamType.COUNT: lambda value: _is_number(value) and value >= 0 and value == int(value),
    ParamType.FLAG: lambda value: isinstance(value, bool),
    ParamType.OBJECT: lambda value: isinstance(value, Mapping),
    ParamType.JSON: lambda value: True,
}
