"""From a server's answer to what a policy may see: no metadata, texts of bounded length. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.environments.connection import Answer

WORST_ESCAPE = 3
"""A character of a frame takes at most twelve in ASCII JSON (a pair of escapes), which is compared
with four times the limit of a text.
"""

SCORES = "rubric_scores"
"""Key of the metadata under which an environment reports the scores of its own rubric."""
MAX_SCORES = 200


@dataclass(frozen=True)
class Observation:
    """What the environment showed, ready for a policy: no metadata, texts of bounded length."""

    fields: dict[str, Any]
    metadata: dict[str, Any]
    """For people only."""
    size_bytes: int
    """Of the whole frame as received."""
    sha256: str
    """Of the whole frame as received."""
    is_shortened: bool


def observed(answer: Answer, max_chars: int) -> Observation:
    """The observation of an answer, without its metadata, shortened."""
    fields = answer.data["observation"]
    metadata, is_shortened = fields.pop("metadata", None), False
    if len(answer.text) > max_chars // WORST_ESCAPE:
        fields, is_shortened = shortened(fields, max_chars)
    encoded = answer.text.encode(errors="replace")
    return Observation(
        fields=fields,
        metadata=metadata if isinstance(metadata, dict) else {},
        size_bytes=answer.size_bytes,
        sha256=hashlib.sha256(encoded).hexdigest(),
        is_shortened=is_shortened,
    )


def reported_scores(metadata: Mapping[str, Any]) -> dict[str, float | str | None]:
    """Scores by name, for grading alone. What is no number stays as its text, which no criterion
    takes for one; the log holds neither NaN nor infinity.
    """
    found = metadata.get(SCORES)
    if not isinstance(found, Mapping):
        return {}
    return {str(name)[:200]: _score(found[name]) for name in list(found)[:MAX_SCORES]}


def _score(value: Any) -> float | str | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else str(value)[:60]


def shortened(value: dict[str, Any], max_chars: int) -> tuple[dict[str, Any], bool]:
    """The value with each long text cut and marked; as a whole at most four times `max_chars`.

    What is large by number rather than by length becomes one shortened text of its JSON.
    """
    cut, is_cut = _cut(value, max_chars)
    if len(json.dumps(cut)) > 4 * max_chars:
        return {"text": _cut_text(json.dumps(cut), max_chars)}, True
    return cut, is_cut


def _cut(value: Any, max_chars: int) -> tuple[Any, bool]:
    if isinstance(value, str):
        is_long = len(value) > max_chars
        return (_cut_text(value, max_chars) if is_long else value), is_long
    if isinstance(value, dict):
        pairs = {key: _cut(item, max_chars) for key, item in value.items()}
        return {k: item for k, (item, _) in pairs.items()}, any(c for _, c in pairs.values())
    if isinstance(value, list):
        items = [_cut(item, max_chars) for item in value]
        return [item for item, _ in items], any(c for _, c in items)
    return value, False


def _cut_text(text: str, max_chars: int) -> str:
    return f"{text[:max_chars]}\n[shortened: {len(text)} characters in all]"
