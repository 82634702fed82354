"""Which proposers there are, and what the offline ones say.

`offline` stands for all operators of `optimizer.operators.registry`, which need no model; each can
be named by itself. The others answer from outside (`orchestrator.proposing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optimizer.edits import Edit
from optimizer.engines.contract import Ask
from optimizer.models import Search
from optimizer.operators import Evidence, PublicCriterion
from optimizer.operators.registry import OFFLINE as OPERATORS
from optimizer.operators.registry import propose_offline
from optimizer.store import load_harness
from orchestrator.environments.models import EnvironmentKind
from orchestrator.proposing.evidence import success_of
from orchestrator.proposing.names import PROPOSERS as OUTSIDE
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.traces import attempts_of, references_of
from rubrics.codec import from_json

OFFLINE = "offline"
KNOWN = (OFFLINE, *OPERATORS, *OUTSIDE)
ANY_ACTION = "one action, in the form that you were told"
MERGED = 4
"""Candidates that are worth crossing."""
MIN_ROLLOUTS = 4
"""Of a candidate before its mean is a reason for anything."""


def offline(names: Sequence[str]) -> list[str]:
    return [name for name in names if name == OFFLINE or name in OPERATORS]


def outside(names: Sequence[str]) -> list[str]:
    """Those that are asked and answer later."""
    return [name for name in names if name in OUTSIDE]


def unknown(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in KNOWN]


def settings_problem(settings: Mapping[str, Any], criteria: Collection[str]) -> str:
    """Why settings of `offline` cannot be used; empty if they can. `criteria`: the rubric's ids."""
    named = [*settings.get("operators", ()), *settings.get("most", {})]
    other = sorted({str(name) for name in named} - set(OPERATORS))
    if other:
        return f"Unknown operators: {', '.join(other)}. There are {', '.join(OPERATORS)}."
    if missing := [str(i) for i in settings.get("criteria", ()) if i not in criteria]:
        return f"The rubric has no criterion {', '.join(missing)} that an agent may know."
    if extra := sorted(set(settings) - {"operators", "most", "criteria"}):
        return f"Unknown settings of offline proposers: {', '.join(extra)}."
    return ""


def propose(*, search: Search, settings: SearchSettings, name: str, ask: Ask) -> list[Edit]:
    """What an offline proposer has to say in a round; the same whenever it is asked.

    Its settings: `operators` (names; all where there are none), `most` (edits of an operator) and
    `criteria` (ids of those whose names the agent may know).
    """
    own = settings.proposer_settings.get(name, {})
    names = list(own.get("operators") or OPERATORS) if name == OFFLINE else [name]
    evidence = replace(
        evidence_of(search, ask), criteria=public_criteria(search, own.get("criteria", ()))
    )
    found = propose_offline(names, evidence, load_harness(search.seed_harness), search.seed)
    return _at_most(found, own.get("most", {}))


def evidence_of(search: Search, ask: Ask) -> Evidence:
    """Train tasks alone; what the search does not learn from is not in it."""
    assert search.environment_version is not None
    kind = search.environment_version.environment.kind
    return Evidence(
        references=references_of(search),
        attempts=attempts_of(search, ask.rows),
        action_format="" if kind == EnvironmentKind.TERMINAL else ANY_ACTION,
        candidates=_best(search),
        success=success_of(search),
    )


def public_criteria(search: Search, ids: Collection[str]) -> list[PublicCriterion]:
    """By name: it was written for people, and says nothing of how a judge is asked."""
    if search.rubric_version is None:
        return []
    return [
        PublicCriterion(item.id, item.label, float(item.weight), item.negative)
        for item in from_json(search.rubric_version.spec).criteria
        if item.id in ids
    ]


def _best(search: Search) -> list[list[Edit]]:
    """Sets of edits that have done well on train tasks so far, best first."""
    edits = {row.sha256: Edit.from_json(row.data) for row in search.edits.all()}
    rows = search.candidates.filter(rollouts__gte=MIN_ROLLOUTS).exclude(edits=[])
    return [
        [edits[sha] for sha in row.edits if sha in edits]
        for row in rows.order_by("-score", "key")[:MERGED]
    ]


def _at_most(edits: Sequence[Edit], most: Mapping[str, int]) -> list[Edit]:
    seen: Counter[str] = Counter()
    kept = []
    for edit in edits:
        seen[edit.operator] += 1
        if seen[edit.operator] <= most.get(edit.operator, len(edits)):
            kept.append(edit)
    return kept
