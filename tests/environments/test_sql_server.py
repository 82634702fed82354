"""The sql kind over its real server: episodes, verdicts, and what statements cannot do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.errors import ActionRejectedError, EpisodeError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession, StepOutcome

SCHEMA = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, city TEXT, money REAL)"
ROWS = {"people": [[1, "Ann", "Oslo", 1.5], [2, "Bob", "Rome", 2.0], [3, "Eva", "Oslo", 0.25]]}
SECRET = "UPDATE people SET city = 'Paris' WHERE name = 'Ann'"
SPECS: list[dict[str, Any]] = [
    {"key": "move", "prompt": "Move Ann to Paris.", "solution": SECRET},
    {"key": "part", "prompt": "?", "solution": "DELETE FROM people", "partial": True},
    {
        "key": "time",
        "prompt": "?",
        "schema": "CREATE TABLE log (what TEXT, at TEXT DEFAULT CURRENT_TIMESTAMP)",
        "solution": "INSERT INTO log (what, at) VALUES ('x', 'now')",
        "ignore_columns": ["log.at"],
    },
    {
        "key": "check",
        "prompt": "?",
        "checks": [
            {"sql": "SELECT count(*) FROM people WHERE city = 'Paris'", "rows": [[2]]},
            {"sql": "SELECT count(*) FROM people", "rows": [[3]]},
        ],
        "partial": True,
    },
    {
        "key": "ask",
        "prompt": "Who lives in Oslo?",
        "answer_query": "SELECT name FROM people WHERE city = 'Oslo'",
    },
    {"key": "only", "prompt": "?", "solution": SECRET, "tables": ["people"]},
    {"key": "new", "prompt": "?", "solution": "CREATE TABLE t (a); INSERT INTO t VALUES (1)"},
    {"key": "short", "prompt": "?", "solution": SECRET, "max_steps": 2},
    {"key": "broken", "prompt": "?", "solution": "UPDATE persons SET x = 1"},
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("sql")
    spec = KINDS["sql"].server(
        name="s",
        source={"schema": SCHEMA, "rows": ROWS},
        resources=Resources(),
        specs=SPECS,
        data=data,
    )
    assert isinstance(spec, LocalSpec)
    with LocalServer(spec, data / "server") as server:
        yield server.base_url


async def play(base_url: str, task: str, *actions: dict[str, Any]) -> StepOutcome:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task=task)
        for action in actions:
            outcome = await session.step(action)
    return outcome


def sql(text: str) -> dict[str, Any]:
    return {"sql": text}


DONE = {"done": True}


async def test_an_episode_from_schema_to_verdict(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        first = await session.reset(task="move", seed=3)
        assert first.fields["segments"] == [{"kind": "context", "text": f"{SCHEMA};"}]
        seen = await session.step(sql("SELECT name, money FROM people WHERE city = 'Oslo'"))
        assert seen.observation.fields == {
            "segments": [
                {"kind": "env_output", "text": "name | money\nAnn | 1.5\nEva | 0.25"},
                {"kind": "scaffold", "text": "\n(2 rows)"},
            ],
            "row_count": 2,
            "error": None,
            "truncated": False,
        }
        assert (seen.reward, seen.done) == (None, False)
        wrong = await session.step(sql("UPDATE people SET town = 'Paris'"))
        assert wrong.observation.fields["error"] == "no such column: town"
        both = await session.step(sql(f"{SECRET}; SELECT 1;"))
        assert [s["text"] for s in both.observation.fields["segments"]] == [
            "(1 row changed)",
            "\n1\n1",
            "\n(1 row)",
        ]
        end = await session.step(DONE)
    assert (end.reward, end.done) == (1.0, True)


@pytest.mark.parametrize(
    ("task", "actions", "reward"),
    [
        ("move", [DONE], 0.0),
        ("move", [sql("UPDATE people SET city = 'Paris'"), DONE], 0.0),
        ("move", [sql(SECRET), sql("CREATE TABLE left_over (x)"), DONE], 0.0),
        ("only", [sql(SECRET), sql("CREATE TABLE left_over (x)"), DONE], 1.0),
        ("move", [sql(f"BEGIN; {SECRET}; COMMIT"), DONE], 1.0),
        # What is not committed is not there.
        ("move", [sql("BEGIN"), sql(SECRET), DONE], 0.0),
        ("move", [sql("DROP TABLE people; CREATE VIEW people AS SELECT 1 AS id"), DONE], 0.0),
        ("part", [sql("DELETE FROM people WHERE id = 1"), DONE], 1 / 3),
        ("part", [DONE], 0.0),
        ("time", [sql("INSERT INTO log (what) VALUES ('x')"), DONE], 1.0),
        ("check", [DONE], 0.0),
        ("check", [sql("UPDATE people SET city = 'Paris' WHERE id < 3"), DONE], 1.0),
        # One check is won and one is lost.
        ("check", [sql("UPDATE people SET city = 'Paris' WHERE id < 3; DELETE FROM people "
                       "WHERE id = 3"), DONE], 0.5),
        ("check", [sql("DROP TABLE people"), DONE], 0.0),
        ("ask", [{"answer": "Eva, Ann"}], 1.0),
        ("ask", [{"answer": "Ann"}], 0.0),
        ("ask", [DONE], 0.0),
        ("ask", [sql("SELECT name FROM people WHERE id <> 2"), DONE], 1.0),
        ("ask", [sql("DELETE FROM people"), {"answer": "Eva, Ann"}], 0.0),
        ("new", [sql("CREATE TABLE t (a); INSERT INTO t VALUES (1.0)"), DONE], 1.0),
        ("new", [sql("CREATE TABLE t (b); INSERT INTO t VALUES (1)"), DONE], 0.0),
        ("short", [sql("SELECT 1"), sql(SECRET)], 1.0),
        ("short", [sql("SELECT 1"), sql("SELECT 2")], 0.0),
    ],
)  # fmt: skip
async def test_the_verdict_is_on_the_state(
    base_url: str, task: str, actions: list[dict[str, Any]], reward: float
) -> None:
    end = await play(base_url, task, *actions)
    assert end.done
    assert end.reward == pytest.approx(reward)


async def test_nothing_that_solves_the_task_is_shown(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        first = await session.reset(task="move")
        states = [await session.state()]
        found = await session.step(sql("SELECT * FROM sqlite_master"))
        files = await session.step(sql("PRAGMA database_list"))
        end = await session.step(DONE)
        states.append(await session.state())
    said = json.dumps(
        [
            *(first.fields, first.metadata, *states),
            *((o.observation.fields, o.observation.metadata) for o in (found, files, end)),
        ]
    )
    assert "Paris" not in said


async def test_episodes_do_not_see_each_other(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as one, EpisodeSession.open(base_url) as other:
        await one.reset(task="move")
        await other.reset(task="move")
        await one.step(sql("DELETE FROM people"))
        seen = await other.step(sql("SELECT count(*) FROM people"))
        assert "3" in seen.observation.fields["segments"][0]["text"]
    again = await play(base_url, "move", sql("SELECT count(*) FROM people"))
    assert again.observation.fields["segments"] == seen.observation.fields["segments"]


async def test_many_episodes_at_once(base_url: str) -> None:
    async with asyncio.TaskGroup() as group:
        played = [
            group.create_task(play(base_url, "move", sql(SECRET if i % 2 else "SELECT 1"), DONE))
            for i in range(12)
        ]
    assert [p.result().reward for p in played] == [0.0, 1.0] * 6


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({}, "alternatives"),
        ({"sql": "SELECT 1", "done": True}, "alternatives"),
        ({"done": False}, "done"),
        ({"sql": ""}, "sql: is empty"),
        ({"sql": "SELECT 'a\0b'"}, "characters"),
        ({"sql": "SELECT '" + "x" * 10_000 + "'"}, "sql: is too long"),
        ({"query": "SELECT 1"}, "query: not allowed"),
        ("SELECT 1", "not a JSON object"),
    ],
)
async def test_actions_that_do_not_fit_are_refused_before_they_are_sent(
    base_url: str, action: Any, reason: str
) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="move")
        with pytest.raises(ActionRejectedError, match=reason):
            await session.step(action)


async def test_a_task_whose_solution_does_not_run_is_an_error_that_names_it(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        with pytest.raises(EpisodeError, match=r"task broken: .*solution: no such table: persons"):
            await session.reset(task="broken")
    async with EpisodeSession.open(base_url) as session:
        with pytest.raises(EpisodeError, match="unknown task 'z'"):
            await session.reset(task="z")


@pytest.mark.slow
async def test_a_query_without_end_ends_and_the_episode_goes_on(base_url: str) -> None:
    forever = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT max(x) FROM r"
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="move")
        seen = await session.step(sql(forever))
        assert seen.observation.fields["error"] == "ended after 5 s"
        await session.step(sql(SECRET))
        assert (await session.step(DONE)).reward == 1.0


def test_a_source_is_checked_and_its_parts_serve_all_tasks(tmp_path: Path) -> None:
    kind = KINDS["sql"]
    for source, reason in (
        ({"engine": "oracle"}, "engine: 'oracle'; accepts sqlite, postgres"),
        ({"dsn_env": "DATABASE_URL"}, "dsn_env: accepts SWITCHBACK_SQL_DSN"),
        ({"dsn": "x"}, "dsn: unknown"),
        ({"rows": []}, "^$"),
        ({"rows": {"t": 1}}, "rows: t: accepts a list of rows"),
        ({"schema": 7}, "schema: accepts SQL as text"),
    ):
        if reason == "^$":
            kind.check_source(source)
            continue
        with pytest.raises(ValueError, match=reason):
            kind.check_source(source)
    task = {"key": "a", "prompt": "?", "solution": "DELETE FROM t"}
    with pytest.raises(ValueError, match="schema: task a has none"):
        kind.server(name="s", source={}, resources=Resources(), specs=[task], data=tmp_path)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "solution: give a solution, checks or an answer_query"),
        ({"solution": 7}, "solution: accepts SQL"),
        ({"solution": "x", "rows": {"t": ["a"]}}, "rows: t, row 1"),
        ({"solution": "x", "ignore_columns": ["at"]}, "ignore_columns: 'at'"),
        ({"solution": "x", "max_steps": 0}, "max_steps: '0'"),
        ({"checks": [{"sql": "SELECT 1"}]}, "checks: rows accepts"),
        ({"checks": [{"sql": "SELECT 1", "rows": [], "is": 1}]}, "checks: accepts a list of"),
        ({"solution": "x", "seed": 1}, "seed: unknown"),
    ],
)
def test_a_task_is_checked(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        KINDS["sql"].check_task(spec, {})


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("SELECT 1", sql("SELECT 1")),
        ("Sure!\n```sql\nUPDATE t\nSET a = 1;\n```\nThat does it.", sql("UPDATE t\nSET a = 1;")),
        ("```\ndone\n```", DONE),
        ("I will look first.\nSELECT *\nFROM t;\n\nThen I change it.", sql("SELECT *\nFROM t;")),
        ("SQL: DELETE FROM t", sql("DELETE FROM t")),
        ("Done.", DONE),
        ("I am done!", DONE),
        ("answer: 42", {"answer": "42"}),
        ("I think so.\n**Answer:** Ann\nBob", {"answer": "Ann\nBob"}),
        ("INSERT INTO t VALUES ('answer: no')", sql("INSERT INTO t VALUES ('answer: no')")),
        ("UPDATE t SET a = 1;\ndone", sql("UPDATE t SET a = 1;\ndone")),
        ("How are you?", sql("How are you?")),
        ("", sql("")),
    ],
)
def test_a_reply_becomes_an_action(reply: str, action: dict[str, Any]) -> None:
    assert KINDS["sql"].action_of(reply) == action


async def test_what_is_left_is_told_after_the_end_and_not_before(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="move", seed=3)
        await session.step(sql("UPDATE people SET money = 1"))
        assert (await session.state())["tables"] is None
        await session.step(DONE)
        tables = (await session.state())["tables"]
    people = tables["people"]
    money = people["columns"].index("money")
    assert {row[money] for row in people["rows"]} == {1}
