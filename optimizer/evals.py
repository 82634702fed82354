"""The tests that travel with a skill: `evals/triggers.json` and `evals/evals.json`.

    triggers.json   [{"query": "How many lines are in a.txt?", "should_trigger": true}, …]
    evals.json      {"skill_name": "count-lines", "evals": [{"id": 1, "prompt": "…",
                     "expected_output": "…", "files": [], "assertions": ["…"]}]}

The forms are those of the guides at agentskills.io. Triggers ask whether the description makes an
agent load the skill when it should, and leave it when it should not; the near misses among them
teach most. They are split once, 60 % to tune on and 40 % to check the winner on: the split is a
function of the queries, so no search can move a query to where it helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.canonical import read_json
from optimizer.errors import HarnessInvalid
from optimizer.seeds import derive

TRIGGERS, EVALS = "evals/triggers.json", "evals/evals.json"
ADVISED_QUERIES = 20
RUNS_PER_QUERY = 3
"""A model does not decide the same way each time; so often each query is asked."""
TUNE_SHARE = 0.6
FEWEST_PER_SIDE = 4
"""Of queries that should, and that should not: with fewer, one side of the split has one or two."""


@dataclass(frozen=True)
class Trigger:
    query: str
    should_trigger: bool


@dataclass(frozen=True)
class OutcomeEval:
    """One task that shows whether the skill is any good once it is loaded."""

    id: str
    prompt: str
    expected_output: str = ""
    files: tuple[str, ...] = ()
    assertions: tuple[str, ...] = ()


@dataclass(frozen=True)
class SkillTests:
    triggers: tuple[Trigger, ...] = ()
    evals: tuple[OutcomeEval, ...] = ()


def tests_of(files: Mapping[str, str], skill: str) -> SkillTests:
    """The tests of a skill among the files of a harness. Raises HarnessInvalid."""
    below = f"skills/{skill}/"
    triggers, evals = files.get(below + TRIGGERS), files.get(below + EVALS)
    return SkillTests(
        triggers=() if triggers is None else parse_triggers(triggers, below + TRIGGERS),
        evals=() if evals is None else parse_evals(evals, skill),
    )


def parse_triggers(text: str, where: str = TRIGGERS) -> tuple[Trigger, ...]:
    """Raises HarnessInvalid; no query may occur twice, whatever its case and space."""
    records = _read(text, where)
    if not isinstance(records, list):
        raise HarnessInvalid(f"{where}: accepts a list of objects with query and should_trigger")
    found = []
    for number, record in enumerate(records, start=1):
        if (
            not isinstance(record, dict)
            or set(record) - {"query", "should_trigger", "note"}
            or not isinstance(record.get("query"), str)
            or not record["query"].strip()
            or not isinstance(record.get("should_trigger"), bool)
        ):
            raise HarnessInvalid(
                f"{where} query {number}: accepts query (text), should_trigger (true or false) "
                "and note"
            )
        found.append(Trigger(record["query"], record["should_trigger"]))
    plain = [_plain(item.query) for item in found]
    if repeated := sorted({query for query in plain if plain.count(query) > 1}):
        raise HarnessInvalid(f"{where}: the same query twice: {repeated[0][:80]!r}")
    return tuple(found)


def parse_evals(text: str, skill: str) -> tuple[OutcomeEval, ...]:
    """Raises HarnessInvalid."""
    where = f"skills/{skill}/{EVALS}"
    record = _read(text, where)
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


@dataclass(frozen=True)
class TriggerSplit:
    tune: tuple[Trigger, ...]
    check: tuple[Trigger, ...]


def split_triggers(triggers: Sequence[Trigger], skill: str) -> TriggerSplit:
    """60 % to tune on, 40 % to check on, of either kind; the order in the file does not matter."""
    tune: list[Trigger] = []
    check: list[Trigger] = []
    for should in (True, False):
        kind = sorted(
            (item for item in triggers if item.should_trigger is should),
            key=lambda item: derive("trigger", skill, _plain(item.query)),
        )
        cut = round(TUNE_SHARE * len(kind))
        tune += kind[:cut]
        check += kind[cut:]
    return TriggerSplit(tuple(tune), tuple(check))


@dataclass(frozen=True)
class TriggerRate:
    """How a description does on some queries; each is right if most of its runs were."""

    right: int
    queries: int
    missed: tuple[str, ...] = field(default=())
    """Queries that should have loaded the skill and did not."""
    false_alarms: tuple[str, ...] = field(default=())

    @property
    def rate(self) -> float | None:
        return self.right / self.queries if self.queries else None


def trigger_rate(triggers: Sequence[Trigger], loads: Mapping[str, Sequence[bool]]) -> TriggerRate:
    """`loads`: query -> whether each run of it loaded the skill. Queries without a run are left
    out of the count: nothing is known of them.
    """
    ran = [item for item in triggers if loads.get(item.query)]
    wrong = [
        item
        for item in ran
        if (2 * sum(loads[item.query]) >= len(loads[item.query])) is not item.should_trigger
    ]
    return TriggerRate(
        right=len(ran) - len(wrong),
        queries=len(ran),
        missed=tuple(item.query for item in wrong if item.should_trigger),
        false_alarms=tuple(item.query for item in wrong if not item.should_trigger),
    )


def advice(tests: SkillTests) -> list[str]:
    """What makes the tests weak, one line each; nothing here is an error."""
    if not tests.triggers:
        return []
    n_should = sum(item.should_trigger for item in tests.triggers)
    n_should_not = len(tests.triggers) - n_should
    found = []
    if len(tests.triggers) < ADVISED_QUERIES:
        found.append(
            f"{TRIGGERS}: {len(tests.triggers)} queries; about {ADVISED_QUERIES} are advised"
        )
    if min(n_should, n_should_not) < FEWEST_PER_SIDE:
        found.append(
            f"{TRIGGERS}: {n_should} queries should load the skill and {n_should_not} should not; "
            f"at least {FEWEST_PER_SIDE} of either are advised"
        )
    return found


def _outcome(item: Any, where: str) -> OutcomeEval:
    accepted = "accepts id, prompt, expected_output, files and assertions"
    if not isinstance(item, dict) or set(item) - {
        "id",
        "prompt",
        "expected_output",
        "files",
        "assertions",
        "expectations",
    }:
        raise HarnessInvalid(f"{where}: {accepted}")
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


def _read(text: str, where: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise HarnessInvalid(f"{where}: not JSON: {error}") from error


def _plain(query: str) -> str:
    return " ".join(query.casefold().split())
