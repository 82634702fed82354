"""What a search stands on, as hashes. A search that would go on with other data is refused."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from optimizer.models import Search

LABELS = {
    "seed_harness": "seed harness",
    "environment": "environment version",
    "rubric": "rubric version",
    "train": "train tasks",
    "select": "select tasks",
    "test": "test tasks",
    "model": "model",
    "settings": "settings",
}
RAISED = "budget"
"""Of the settings: caps may be raised, which changes what can be afforded and nothing else."""


def fingerprints_of(search: Search) -> dict[str, str]:
    """Of what the search would use now. Two queries."""
    version, rubric, model = search.environment_version, search.rubric_version, search.model
    assert version is not None
    assert rubric is not None
    assert model is not None
    tasks: dict[str, list[list[Any]]] = {"train": [], "select": [], "test": []}
    rows = version.tasks.order_by("key").values_list("split", "key", "family", "prompt")
    for split, *rest in rows:
        tasks.setdefault(split, []).append(rest)
    settings = {name: value for name, value in search.settings.items() if name != RAISED}
    return {
        "seed_harness": search.seed_harness.sha256,
        "environment": version.sha256,
        "rubric": rubric.sha256,
        "model": _digest([model.pk, model.kind, model.model]),
        "settings": _digest(settings),
        **{split: _digest(found) for split, found in tasks.items()},
    }


def changed(search: Search) -> str:
    """Why the search must not go on; empty if all is as it was when it began."""
    now = fingerprints_of(search)
    other = [LABELS.get(name, name) for name, kept in search.fingerprints.items()
             if now.get(name) != kept]  # fmt: skip
    if not other:
        return ""
    return (
        f"The search began with other data: {', '.join(other)} changed since. Its rollouts would "
        "be mixed with those of another search; start a new one."
    )


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
