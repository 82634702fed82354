"""What of a criterion its labels and verdicts hang on, and who decided a verdict. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CODE = "code"
"""Who decided, where no model did."""


@dataclass(frozen=True)
class CriterionSpec:
    """What of a criterion matters here, from its stored JSON."""

    id: str
    name: str
    kind: str
    params: Mapping[str, Any]
    threshold: float
    is_negative: bool
    content: str
    """Equal for criteria whose verdicts can be compared."""
    scale: str
    """Equal for criteria whose labels mean the same."""

    @property
    def is_judge(self) -> bool:
        return self.kind.startswith("judge")

    @property
    def is_judged_alone(self) -> bool:
        """A model decides each rollout by itself, by a question in words."""
        return self.kind in ("judge", "judge_panel") and bool(self.question)

    @property
    def question(self) -> str:
        return str(self.params.get("question", ""))

    def passes(self, value: float) -> bool:
        return value < self.threshold if self.is_negative else value >= self.threshold


def criterion_specs(spec: Mapping[str, Any]) -> dict[str, CriterionSpec]:
    """Of a stored rubric, in its order."""
    listed = [raw for raw in spec.get("criteria") or () if isinstance(raw, Mapping)]
    return {str(raw.get("id", "")): _spec_of(raw) for raw in listed}


def _spec_of(raw: Mapping[str, Any]) -> CriterionSpec:
    params = raw.get("params") or {}
    deciding = [raw.get("kind"), params, raw.get("scope") or "final_answer", raw.get("applies")]
    is_negative = bool(raw.get("negative"))
    scale = [params.get("scale", "binary"), params.get("min"), params.get("max"), is_negative]
    return CriterionSpec(
        id=str(raw.get("id", "")),
        name=str(raw.get("name") or raw.get("id", "")),
        kind=str(raw.get("kind", "")),
        params=params,
        threshold=float(raw.get("threshold", 0.5)),
        is_negative=is_negative,
        content=json.dumps(deciding, sort_keys=True),
        scale=json.dumps(scale),
    )


def judge_of(detail: Mapping[str, Any]) -> str:
    """Who decided: names of the models that were asked, else `code`."""
    return " + ".join(sorted({str(c["model"]) for c in _called(detail) if c.get("model")})) or CODE


def calls_of(detail: Mapping[str, Any]) -> list[int]:
    """Ids of the stored calls behind a verdict."""
    return [int(call["call"]) for call in _called(detail) if call.get("call")]


def _called(detail: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Each call of a verdict, of its steps, and of the pairs that a group was judged by."""
    for name in ("calls", "steps", "pair"):
        for part in detail.get(name) or ():
            if isinstance(part, Mapping):
                yield part
                yield from _called(part)
