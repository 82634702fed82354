"""The tests that travel with a skill: `evals/evals.json` and `evals/triggers.json`.

    evals.json      {"skill_name": "count-lines", "evals": [{"id": 1, "prompt": "…",
                     "expected_output": "…", "files": [], "assertions": ["…"]}]}
    triggers.json   [{"query": "How many lines are in a.txt?", "should_trigger": true}, …]

The forms are those of the guides at agentskills.io. A harness may be imported with tests in another
form, for no rollout needs them; `problems` then says what is wrong. How a description is tuned on
its queries is `optimizer.reflection.triggers`; of these the near misses teach most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optimizer.canonical import read_json
from optimizer.errors import HarnessInvalid
from optimizer.harness import Harness
from optimizer.reflection.triggers import FILE as TRIGGERS
from optimizer.reflection.triggers import queries_of

EVALS = "evals/evals.json"
ADVISED_QUERIES = 20
FEWEST_OF_A_KIND = 5
"""Queries that should, and that should not: with fewer, two are left to check the winner on."""
FIELDS = ("id", "prompt", "expected_output", "files", "assertions", "expectations")


@dataclass(frozen=True)
class OutcomeEval:
    """One task that shows whether the skill is any good once it is loaded."""

    id: str
    prompt: str
    expected_output: str = ""
    files: tuple[str, ...] = ()
    assertions: tuple[str, ...] = ()


def parse_evals(text: str, skill: str) -> tuple[OutcomeEval, ...]:
    """Raises HarnessInvalid."""
    where = f"skills/{skill}/{EVALS}"
    try:
        record = read_json(text)
    except ValueError as error:
        raise HarnessInvalid(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("evals"), list):
        raise HarnessInvalid(f"{where}: accepts an object with skill_name and a list of evals")
    if record.get("skill_name", skill) != skill:
        raise HarnessInvalid(
            f"{where}: skill_name is {record['skill_name']!r}; the skill is {skill!r}"
        )
    found = [_outcome(item, f"{where} eval {n}") for n, item in enumerate(record["evals"], 1)]
    ids = [item.id for item in found]
    if repeated := sorted({id for id in ids if ids.count(id) > 1}):
        raise HarnessInvalid(f"{where}: id used twice: {', '.join(repeated)}")
    return tuple(found)


def problems(harness: Harness) -> list[str]:
    """What cannot be read of the tests of its skills, one line each."""
    found = []
    for skill in harness.skills:
        below = f"skills/{skill.name}/"
        try:
            if below + EVALS in harness.files:
                parse_evals(harness.files[below + EVALS], skill.name)
        except HarnessInvalid as error:
            found.append(str(error))
        try:
            if below + TRIGGERS in harness.files:
                queries_of(harness, skill.name)
        except HarnessInvalid as error:
            found.append(str(error))
    return found


def advice(harness: Harness) -> list[str]:
    """What makes the tests of its skills weak, one line each. Those that cannot be read are left
    out.
    """
    found = []
    for skill in harness.skills:
        where = f"skills/{skill.name}/{TRIGGERS}"
        try:
            queries = queries_of(harness, skill.name) if where in harness.files else []
        except HarnessInvalid:
            continue
        n_should = sum(query.should_load for query in queries)
        n_should_not = len(queries) - n_should
        if 0 < len(queries) < ADVISED_QUERIES:
            found.append(f"{where}: {len(queries)} queries; about {ADVISED_QUERIES} are advised")
        if queries and min(n_should, n_should_not) < FEWEST_OF_A_KIND:
            found.append(
                f"{where}: {n_should} queries should load the skill and {n_should_not} should "
                f"not; at least {FEWEST_OF_A_KIND} of either are advised"
            )
    return found


def _outcome(item: Any, where: str) -> OutcomeEval:
    if not isinstance(item, dict) or set(item) - set(FIELDS):
        raise HarnessInvalid(f"{where}: accepts {', '.join(FIELDS[:-1])}")
    identifier, prompt = item.get("id"), item.get("prompt")
    if not isinstance(identifier, str | int) or isinstance(identifier, bool):
        raise HarnessInvalid(f"{where}: id accepts a number or text")
    if not isinstance(prompt, str) or not prompt.strip():
        raise HarnessInvalid(f"{where}: prompt accepts text")
    expected = item.get("expected_output", "")
    if not isinstance(expected, str):
        raise HarnessInvalid(f"{where}: expected_output accepts text")
    assertions = item.get("assertions", item.get("expectations", []))
    return OutcomeEval(
        id=str(identifier),
        prompt=prompt,
        expected_output=expected,
        files=_texts(item.get("files", []), f"{where}: files"),
        assertions=_texts(assertions, f"{where}: assertions"),
    )


def _texts(values: Any, where: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise HarnessInvalid(f"{where} accepts a list of texts")
    return tuple(values)
