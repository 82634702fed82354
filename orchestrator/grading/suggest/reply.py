"""Reading what a model proposed: each criterion is usable as it stands, or left out with a reason.

Pure.

The reply must be one JSON object, alone or in one fence, behind closed reasoning at most. A reply
that is not is refused as a whole. Of one that is, a criterion that could not be graded is named
with what is wrong; nothing of it is repaired by guessing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.grading.findings import problems_alone
from orchestrator.grading.suggest.question import N_CRITERIA, kinds_offered

MAX_NAME = 120
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n```", re.DOTALL)
_FIELDS = ("kind", "name", "params", "scope", "weight", "required", "negative", "threshold")
_DEFAULTS = {"params": {}, "weight": 1, "required": False, "negative": False, "threshold": 0.5}


class ReplyUnusable(ValueError):
    """The text says why, in words that a model understands too."""


@dataclass(frozen=True)
class Proposal:
    criterion: Mapping[str, Any]
    """As the draft would have it."""
    why: str


@dataclass(frozen=True)
class Proposed:
    proposals: Sequence[Proposal]
    left_out: Sequence[tuple[str, str]]
    """Name and reason."""


def read_proposals(reply: str | None, taken: Sequence[str] = ()) -> Proposed:
    """`taken`: ids that the rubric has. Raises ReplyUnusable."""
    listed = _criteria(_value(reply or ""))
    proposals: list[Proposal] = []
    left_out: list[tuple[str, str]] = []
    ids = set(taken)
    for number, item in enumerate(listed, start=1):
        name = _name(item, number)
        if number > N_CRITERIA:
            left_out.append((name, f"more than {N_CRITERIA} were proposed"))
            continue
        if not isinstance(item, Mapping):
            left_out.append((name, "is not an object"))
            continue
        criterion = _criterion(item, name, ids)
        if reason := _reason(criterion):
            left_out.append((name, reason))
            continue
        ids.add(criterion["id"])
        proposals.append(Proposal(criterion, str(item.get("why") or "")[:500]))
    return Proposed(proposals, left_out)


def _value(reply: str) -> Any:
    text = _THINKING.sub("", reply).strip()
    if not text:
        raise ReplyUnusable("The reply is empty.")
    fences = _FENCE.findall(text)
    if not text.startswith(("{", "[")) and len(fences) == 1:
        text = fences[0]
    elif (whole := _FENCE.fullmatch(text)) is not None:
        text = whole.group(1)
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ReplyUnusable("The reply is nested too deeply.") from None
    except ValueError as exc:
        raise ReplyUnusable(f"The reply is not one JSON object: {exc}.") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _criteria(value: Any) -> Sequence[Any]:
    listed = value.get("criteria") if isinstance(value, Mapping) else value
    if not isinstance(listed, list):
        raise ReplyUnusable('The reply has no list "criteria".')
    if not listed:
        raise ReplyUnusable("The reply proposes no criterion.")
    return listed


def _name(item: Any, number: int) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    text = " ".join(name.split()) if isinstance(name, str) else ""
    return text[:MAX_NAME] or f"criterion {number}"


def _criterion(item: Mapping[str, Any], name: str, ids: set[str]) -> dict[str, Any]:
    criterion: dict[str, Any] = {
        key: item[key]
        for key in _FIELDS
        if key in item and item[key] is not None and item[key] != _DEFAULTS.get(key, ...)
    }
    kind = next((k for k in kinds_offered() if k.name == criterion.get("kind")), None)
    if kind is not None and "scope" not in criterion:
        criterion["scope"] = kind.scopes[0].value
    if kind is not None and kind.negative is not None:
        # Not a guess: the kind has this sign, whatever is said.
        criterion["negative"] = kind.negative
    return {"id": _id(name, ids), **criterion, "name": name}


def _id(name: str, ids: set[str]) -> str:
    head = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:48] or "criterion"
    number, found = 1, head
    while found in ids:
        number += 1
        found = f"{head}_{number}"
    return found


def _reason(criterion: Mapping[str, Any]) -> str:
    """Why it cannot be used; empty if it can."""
    # A list, for a kind may be anything here, also what cannot be hashed.
    if criterion.get("kind") not in [kind.name for kind in kinds_offered()]:
        return f"kind: {criterion.get('kind')!r} is not offered"
    notes = problems_alone(criterion)
    return "; ".join(f"{note.field}: {note.text}" for note in notes)[:500]
