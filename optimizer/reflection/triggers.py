"""The description of a skill, judged by what it makes an agent load.

`evals/triggers.json` of a skill holds queries that should and should not load it. A fixed 60 % of
them, by hash, choose among descriptions; the other 40 % are only reported on. Each query is asked
several times, with nothing but the catalogue of skills in sight, so what is measured is a rate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.edits import DESCRIPTION, Edit, Op
from optimizer.errors import HarnessInvalid
from optimizer.harness import Harness
from optimizer.reflection.modes import Mode
from optimizer.skills import Skill

FILE = "evals/triggers.json"
TUNING_SHARE = 0.6
MAX_QUERIES = 60
MAX_QUERY_CHARS = 4_000


@dataclass(frozen=True)
class Query:
    text: str
    should_load: bool


@dataclass(frozen=True)
class Rate:
    """Of right decisions: loads where it should, and leaves alone where it should not."""

    right: int
    n: int

    @property
    def share(self) -> float:
        return self.right / self.n if self.n else 0.0

    def __str__(self) -> str:
        return f"{self.right} of {self.n}"


Loads = Mapping[str, Sequence[bool]]
"""By query: whether each run loaded the skill."""


def tunable(harness: Harness, protected: Sequence[str] = ()) -> list[Skill]:
    """Skills with queries, in the order of their names."""
    return [
        skill
        for skill in harness.skills
        if f"skills/{skill.name}/{FILE}" in harness.files
        and f"skills/{skill.name}/SKILL.md" not in protected
    ]


def queries_of(harness: Harness, skill: str) -> list[Query]:
    """Raises HarnessInvalid."""
    where = f"skills/{skill}/{FILE}"
    try:
        found = json.loads(harness.files[where])
    except ValueError as error:
        raise HarnessInvalid(f"{where}: not JSON: {error}") from error
    if isinstance(found, dict):
        found = found.get("queries")
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_QUERIES:
        raise HarnessInvalid(f"{where}: accepts a list of 1 to {MAX_QUERIES} queries")
    queries = [_query(item, f"{where}, number {i}") for i, item in enumerate(found, start=1)]
    if len({query.text for query in queries}) < len(queries):
        raise HarnessInvalid(f"{where}: a query stands there twice")
    if len({query.should_load for query in queries}) < 2:
        raise HarnessInvalid(
            f"{where}: needs queries that should load the skill and queries that should not"
        )
    return queries


def _query(item: Any, where: str) -> Query:
    text = item.get("query") if isinstance(item, dict) else None
    should = item.get("should_trigger") if isinstance(item, dict) else None
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_QUERY_CHARS:
        raise HarnessInvalid(f"{where}: query accepts text of 1 to {MAX_QUERY_CHARS:,} characters")
    if not isinstance(should, bool):
        raise HarnessInvalid(f"{where}: should_trigger accepts true or false")
    return Query(text, should)


def halves(skill: str, queries: Sequence[Query]) -> tuple[list[Query], list[Query]]:
    """(to tune on, to report on), each with its share of both kinds; the same for ever."""
    tuning, held_out = [], []
    for should_load in (True, False):
        kind = [query for query in queries if query.should_load is should_load]
        kind.sort(key=lambda query: hashlib.sha256(f"{skill}\x00{query.text}".encode()).digest())
        n = max(1, round(TUNING_SHARE * len(kind)))
        tuning += kind[:n]
        held_out += kind[n:]
    return tuning, held_out


def catalogue_only(harness: Harness, skill: str, description: str) -> Harness:
    """Nothing but the skills, this one with this description: what an agent decides by."""
    return Harness(
        skills=tuple(
            replace(item, description=description) if item.name == skill else item
            for item in harness.skills
        ),
        sampling=harness.sampling,
    )


def rate(queries: Sequence[Query], loads: Loads) -> Rate:
    """Over all runs of these queries."""
    runs = [(query.should_load, loaded) for query in queries for loaded in loads[query.text]]
    return Rate(sum(should == loaded for should, loaded in runs), len(runs))


def told(queries: Sequence[Query], loads: Loads) -> list[dict[str, Any]]:
    """For the question: each query with what happened, the wrong ones first."""
    return [
        {
            "query": query.text,
            "should_load": query.should_load,
            "loaded": f"{sum(loads[query.text])} of {len(loads[query.text])} times",
        }
        for query in sorted(queries, key=lambda query: rate([query], loads).share)
    ]


def best(current: str, rates: Mapping[str, Rate]) -> str:
    """The description with the highest rate; the present one if none is above it, else the
    shortest. `rates`: on the queries to tune on, the present description among them.
    """
    top = max(rates.values(), key=lambda found: found.share).share
    if rates[current].share >= top:
        return current
    return min((text for text in rates if rates[text].share == top), key=lambda t: (len(t), t))


def description_edit(skill: str, description: str) -> Edit:
    return Edit(
        Op.SET,
        f"skills/{skill}/SKILL.md",
        DESCRIPTION,
        description,
        operator=str(Mode.TRIGGERS),
    )
