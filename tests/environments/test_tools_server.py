"""The kind `tools` over its real server: functions in the sandbox, MCP servers as processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.episode import EpisodeState, View, run_episode
from orchestrator.environments.errors import Cause, EpisodeError, ServerStartError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.kinds.acting import call_tool
from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession, StepOutcome
from tests.environments.conftest import needs_bubblewrap
from tests.waiting import wait_until

pytestmark = needs_bubblewrap
FUNCTIONS = '''
"""A small shop."""
import os
import time

SEEN = []


class Broken(Exception):
    pass


def price(state, item: str) -> float:
    """The price of an item."""
    SEEN.append(item)
    return state["prices"][item]


def order(state, item: str, count: int = 1, express: bool = False) -> dict:
    """Order an item.

    Returns the order.
    """
    state.setdefault("orders", []).append({"item": item, "count": count})
    if count > 100:
        raise Broken("too many")
    return state["orders"][-1]


def seen() -> list[str]:
    """What was asked for."""
    return SEEN


def slow(seconds: float) -> str:
    """Takes its time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


def leave(how: str) -> str:
    """Ends in an odd way."""
    if how == "exit":
        raise SystemExit(3)
    if how == "nan":
        return float("nan")
    return object()


def long(n: int) -> str:
    """A long text."""
    return "x" * n


def look(path: str) -> list[str]:
    """What is in a folder."""
    return sorted(os.listdir(path))


def variables() -> dict[str, str]:
    """The process's environment variables."""
    return dict(os.environ)


def _hidden() -> str:
    return "hidden"
'''
TASKS: list[dict[str, Any]] = [
    {"key": "price", "prompt": "What is a pen?", "state": {"prices": {"pen": 2.5}}, "answer": 2.5},
    {
        "key": "order",
        "prompt": "Order two pens.",
        "state": {"prices": {"pen": 2.5}},
        "expected_state": {"orders": [{"item": "pen", "count": 2}]},
        "max_calls": 4,
    },
    {"key": "near", "prompt": "Pi?", "answer": {"pi": 3.14, "of": ["a"]}, "tolerance": 0.01},
]
PLAIN = {"functions": FUNCTIONS, "tool_timeout_s": 1}
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve(source, tasks, resources)`: the address of a server; equal ones are started once."""
    servers: dict[str, LocalServer] = {}

    def get(
        source: dict[str, Any] = PLAIN,
        tasks: list[dict[str, Any]] = TASKS,
        resources: Resources | None = None,
    ) -> str:
        key = json.dumps([source, tasks, repr(resources)])
        if key not in servers:
            data = tmp_path_factory.mktemp("env")
            spec = KINDS["tools"].server(
                name="t",
                source=source,
                resources=resources or Resources(),
                specs=tasks,
                data=data,
            )
            assert isinstance(spec, LocalSpec)
            server = LocalServer(spec, data / "server")
            # Readiness is waited for in a loop of its own, which a test's loop does not allow.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(server.wait_for_ready, server.start_container()).result()
            servers[key] = server
        return servers[key].base_url

    yield get
    for server in servers.values():
        server.close()


async def play(base_url: str, task: str, *calls: tuple[str, dict[str, Any]]) -> list[StepOutcome]:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task=task)
        return [await session.step(call_tool(name, arguments)) for name, arguments in calls]


def data_of(outcome: StepOutcome) -> Any:
    return outcome.observation.fields["result"]["data"]


def error_of(outcome: StepOutcome) -> tuple[str, str]:
    error = outcome.observation.fields["error"]
    return error["error_type"], error["message"]


async def test_an_episode_from_the_prompt_to_the_verdict(serve: Serve) -> None:
    async with EpisodeSession.open(serve()) as session:
        first = await session.reset(task="price", seed=1)
        assert KINDS["tools"].segments(first.fields) == [
            {"kind": "context", "text": "What is a pen?"}
        ]
        listed = {tool["name"]: tool for tool in await session.list_tools()}
        assert set(listed) == {
            *("price", "order", "seen", "slow", "leave", "long", "look", "variables", "submit")
        }
        assert listed["order"]["description"] == "Order an item.\n\nReturns the order."
        assert listed["order"]["input_schema"]["required"] == ["item"]
        assert set(listed["order"]["input_schema"]["properties"]) == {"item", "count", "express"}
        seen = await session.step(call_tool("price", {"item": "pen"}))
        assert KINDS["tools"].segments(seen.observation.fields) == [
            {"kind": "env_output", "text": "2.5"}
        ]
        assert (seen.reward, seen.done) == (None, False)
        end = await session.step(call_tool("submit", {"answer": "2.50"}))
        assert (end.reward, end.done) == (1.0, True)
        assert (await session.state())["step_count"] == 2


@pytest.mark.parametrize(
    ("answer", "reward"),
    [(2.5, 1.0), ("2.5", 1.0), (2.4, 0.0), (True, 0.0), ("two", 0.0), (None, 0.0), ([2.5], 0.0)],
)
async def test_the_answer_decides(serve: Serve, answer: Any, reward: float) -> None:
    (end,) = await play(serve(), "price", ("submit", {"answer": answer}))
    assert (end.reward, end.done) == (reward, True)


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ({"pi": 3.1415, "of": ["a"]}, 1.0),
        ({"pi": 3.1415, "of": ["a"], "more": None}, 1.0),
        ({"pi": 3.1415, "of": ["a"], "more": 1}, 0.0),
        ({"pi": 3.16, "of": ["a"]}, 0.0),
        ({"pi": 3.14, "of": ["a", "b"]}, 0.0),
        ({"of": ["a"]}, 0.0),
    ],
)
async def test_numbers_inside_an_answer_have_a_tolerance(
    serve: Serve, answer: Any, reward: float
) -> None:
    (end,) = await play(serve(), "near", ("submit", {"answer": answer}))
    assert end.reward == reward


async def test_the_state_that_calls_leave_decides(serve: Serve) -> None:
    right = await play(serve(), "order", ("order", {"item": "pen", "count": "2"}), ("submit", {}))
    wrong = await play(serve(), "order", ("order", {"item": "pen"}), ("submit", {}))
    assert [o.reward for o in (*right, *wrong)] == [None, 1.0, None, 0.0]
    refused, end = await play(serve(), "order", ("submit", {"answer": 1}), ("submit", {}))
    assert error_of(refused)[0] == "invalid_args"
    assert (refused.done, end.done) == (False, True)


async def test_a_call_that_fails_changes_nothing(serve: Serve) -> None:
    outcomes = await play(
        serve(),
        "order",
        ("order", {"item": "pen", "count": 500}),
        ("order", {"item": "pen", "count": 2}),
        ("submit", {}),
    )
    assert error_of(outcomes[0]) == ("execution_error", "Broken: too many")
    assert outcomes[-1].reward == 1.0


async def test_without_a_submission_the_state_is_judged_at_the_last_call(serve: Serve) -> None:
    idle = await play(serve(), "order", *[("seen", {})] * 4)
    assert [(o.reward, o.done) for o in idle] == [(None, False)] * 3 + [(0.0, True)]
    assert KINDS["tools"].segments(idle[-1].observation.fields)[-1] == {
        "kind": "warning",
        "text": "\n(nothing submitted in 4 calls: the episode is over)",
    }
    done = await play(serve(), "order", ("order", {"item": "pen", "count": 2}), *[("seen", {})] * 3)
    assert (done[-1].reward, done[-1].done) == (1.0, True)


@pytest.mark.parametrize(
    ("name", "arguments", "error_type", "words"),
    [
        ("nothing", {}, "tool_not_found", "no tool 'nothing'"),
        ("_hidden", {}, "tool_not_found", "_hidden"),
        ("grade", {}, "tool_not_found", "grade"),
        ("price", {}, "invalid_args", "item: Field required"),
        ("price", {"item": "pen", "of": 1}, "invalid_args", "of: Extra inputs"),
        ("price", {"item": "pen", "state": {}}, "invalid_args", "state: Extra inputs"),
        ("order", {"item": "pen", "count": "x"}, "invalid_args", "count: Input should be"),
        ("price", {"item": "cup"}, "execution_error", "KeyError: 'cup'"),
        ("leave", {"how": "exit"}, "execution_error", "SystemExit: 3"),
        ("leave", {"how": "nan"}, "execution_error", "ValueError"),
        ("leave", {"how": "object"}, "execution_error", "serialize"),
        ("slow", {"seconds": 30}, "timeout", "longer than 1 s"),
    ],
)
async def test_what_goes_wrong_with_a_call_is_an_observation(
    serve: Serve, name: str, arguments: dict[str, Any], error_type: str, words: str
) -> None:
    failed, fine = await play(serve(), "price", (name, arguments), ("price", {"item": "pen"}))
    found, message = error_of(failed)
    assert (found, failed.reward, failed.done) == (error_type, None, False)
    assert words in message
    assert data_of(fine) == 2.5
    (segment,) = KINDS["tools"].segments(failed.observation.fields)
    assert segment["kind"] == "env_output"
    assert segment["text"].startswith(f"error ({error_type})")


async def test_long_results_are_cut(serve: Serve) -> None:
    (outcome,) = await play(serve(), "price", ("long", {"n": 50_000}))
    text = KINDS["tools"].segments(outcome.observation.fields)[0]["text"]
    assert len(text) < 21_000
    assert text.endswith("[cut: 50000 characters in all]")


async def test_episodes_share_neither_state_nor_module_variables(serve: Serve) -> None:
    async def one(number: int) -> Any:
        outcomes = await play(
            serve(),
            "order",
            ("order", {"item": f"item {number}"}),
            ("price", {"item": "pen"}),
            ("seen", {}),
        )
        return data_of(outcomes[-1])

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(number)) for number in range(16)]
    assert [task.result() for task in running] == [["pen"]] * 16


async def test_functions_run_in_the_sandbox(serve: Serve) -> None:
    repository = Path(__file__).parents[2]
    ours, environ, app = await play(
        serve(),
        "price",
        # A virtual environment in the repository is shown, for its packages; nothing else of it.
        ("look", {"path": str(repository / "orchestrator")}),
        ("variables", {}),
        ("look", {"path": "/app/orchestrator/environments"}),
    )
    assert "No such file" in error_of(ours)[1]
    assert data_of(app) == ["tasks_file.py", "tools"]
    known = {"PATH", "HOME", "PWD", "TMPDIR", "LC_ALL", "TERM", "USER"}
    assert {n for n in data_of(environ) if not n.startswith("PYTHON")} <= known


async def test_the_answer_is_nowhere_before_the_end(serve: Serve) -> None:
    tasks = [{"key": "a", "prompt": "P", "answer": "a most unlikely answer", "data": "likewise"}]
    async with EpisodeSession.open(serve(PLAIN, tasks)) as session:
        said = [json.dumps((await session.reset(task="a")).fields)]
        said.append(json.dumps(await session.list_tools()))
        for call in (call_tool("seen", {}), call_tool("submit", {"wrong": 1})):
            said.append(json.dumps((await session.step(call)).observation.fields))
        said.append(json.dumps(await session.state()))
    assert "unlikely" not in "".join(said)
    assert "likewise" not in "".join(said)


GRADERS: dict[str, tuple[str, float | str]] = {
    "sees all": (
        "def grade(state, answer, task):\n"
        "    calls = [c['tool'] for c in task['calls']]\n"
        "    ok = state['prices'] == {'pen': 2.5} and task['data'] == {'w': 2}\n"
        "    return 0.25 * len(calls) if ok and answer == 'x' else -1",
        0.25,
    ),
    "a flag": ("def grade(state, answer, task):\n    return True", 1.0),
    "raises": ("def grade(state, answer, task):\n    return 1 / 0", "ZeroDivisionError"),
    "no number": ("def grade(state, answer, task):\n    return None", "finite number"),
    "not finite": ("def grade(state, answer, task):\n    return float('nan')", "finite number"),
    "ends": ("def grade(state, answer, task):\n    raise SystemExit(1)", "SystemExit"),
}


@pytest.mark.parametrize("name", GRADERS)
async def test_a_grader_gives_the_reward_or_none(serve: Serve, name: str) -> None:
    grade, expected = GRADERS[name]
    tasks = [{"key": "a", "prompt": "P", "state": {"prices": {"pen": 2.5}}, "data": {"w": 2}}]
    base_url = serve({**PLAIN, "functions": f"{FUNCTIONS}\n{grade}"}, tasks)
    calls = iter([call_tool("price", {"item": "pen"}), call_tool("submit", {"answer": "x"})])

    def policy(view: View) -> dict[str, Any]:
        return next(calls)

    result = await run_episode(base_url, policy, reset={"task": "a"})
    if isinstance(expected, float):
        assert (result.state, result.reward) == (EpisodeState.SCORED, expected)
    else:
        assert (result.state, result.cause) == (EpisodeState.ERRORED, Cause.ENV_EXCEPTION)
        assert result.reward is None
        assert expected in result.message


async def test_the_form_of_the_answer_is_the_authors(serve: Serve) -> None:
    schema = {
        "properties": {"decision": {"enum": ["yes", "no"]}, "amount": {"type": "number"}},
        "required": ["decision"],
    }
    tasks = [{"key": "a", "prompt": "P", "answer": {"decision": "yes", "amount": 3}}]
    base_url = serve({**PLAIN, "answer_schema": schema}, tasks)
    refused, end = await play(
        base_url,
        "a",
        ("submit", {"decision": "perhaps"}),
        ("submit", {"decision": "yes", "amount": 3}),
    )
    assert error_of(refused)[0] == "invalid_args"
    assert end.reward == 1.0
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="a")
        submit = (await session.list_tools())[-1]
    assert submit["input_schema"]["properties"] == schema["properties"]


def test_source_that_fails_when_it_is_run_is_told_at_the_start(serve: Serve) -> None:
    with pytest.raises(ServerStartError, match="no_such_module"):
        serve({"functions": f"import no_such_module\n{FUNCTIONS}"})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "functions: give functions, or else a server"),
        ({**PLAIN, "server": {"url": "http://x"}}, "one of the two"),
        ({"functions": "x = 1"}, "defines no function"),
        ({"functions": "def f(:\n"}, "functions: line 1: "),
        ({"functions": "def f(x):\n    'doc'"}, "f: x has no type"),
        ({"functions": "def f(x: int): return x"}, "f: has no docstring"),
        ({"functions": "def f(*x: int):\n    'doc'"}, "name each parameter"),
        ({"functions": "def submit(x: int):\n    'doc'"}, "submit is the environment's own"),
        ({**PLAIN, "grade": "x = 1"}, "grade: defines no function grade"),
        ({**PLAIN, "answer_schema": {"type": "object"}}, "answer_schema: a JSON schema with"),
        ({**PLAIN, "tool_timeout_s": 0}, "tool_timeout_s: above 0"),
        ({**PLAIN, "tool_timeout_s": "5"}, "tool_timeout_s: a number"),
        ({**PLAIN, "function": "x"}, "function: unknown; known are"),
        ({"server": "x"}, "server: an object"),
        ({"server": {}}, "functions: give functions"),
        ({"server": {"url": "ftp://x"}}, "server.url: http"),
        ({"server": {"command": "python x"}}, "server.command: a list"),
        ({"server": {"command": ["x"], "url": "http://x"}}, "server: give a command, or"),
        ({"server": {"command": ["x"], "files": {"../a": ""}}}, "server.files: '../a'"),
        ({"server": {"command": ["x"], "env": {"A": 1}}}, "server.env: an object of texts"),
        ({"server": {"command": ["x"], "cwd": "/"}}, "server.cwd: unknown"),
    ],
)
def test_a_source_that_cannot_be_served_is_told_by_its_field(
    source: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        KINDS["tools"].check_source(source)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"answer": 1, "state": []}, None),
        ({"answer": 1, "state": [1]}, "state: an object"),
        ({"expected_state": 3}, "expected_state: an object"),
        ({"answer": 1, "tolerance": -1}, "tolerance: at least 0"),
        ({"answer": 1, "max_calls": 0}, "max_calls: a whole number"),
        ({"answer": 1, "max_calls": "3"}, "max_calls: a number"),
        ({"answer": 1, "anwser": 1}, "anwser: unknown"),
    ],
)
def test_a_task_that_cannot_be_served_is_told_by_its_field(
    spec: dict[str, Any], words: str | None
) -> None:
    if words is None:
        KINDS["tools"].check_task(spec, {})
    else:
        with pytest.raises(ValueError, match=words):
            KINDS["tools"].check_task(spec, {})


def test_a_task_that_nothing_decides_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="answer: nothing decides the reward"):
        KINDS["tools"].server(
            name="t",
            source=PLAIN,
            resources=Resources(),
            specs=[{"key": "a", "prompt": "P"}],
            data=tmp_path,
        )


# --- MCP servers ---------------------------------------------------------------------------------

MCP_SERVER = '''
import os, sys, time
from fastmcp import FastMCP

server = FastMCP("notes")
notes = []

@server.tool
def note(text: str) -> list[str]:
    """Keep a note; gives all notes."""
    notes.append(text)
    return notes

@server.tool
def fail() -> str:
    """Fails."""
    raise ValueError("out of order")

@server.tool
def sleep(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "done"

@server.tool
def crash() -> str:
    """Ends the process."""
    os._exit(4)

@server.tool
def where() -> dict:
    """About the process."""
    return {"files": sorted(os.listdir(".")), "variable": os.environ.get("GREETING")}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
    else:
        server.run(show_banner=False)
'''
STDIO = {
    "server": {
        "command": ["python", "server.py"],
        "files": {"server.py": MCP_SERVER, "data/a.txt": "a\n"},
        "env": {"GREETING": "hello"},
    },
    "tool_timeout_s": 2,
}
MCP_TASKS = [{"key": "a", "prompt": "Take a note.", "answer": "done"}]


@pytest.mark.slow
async def test_an_mcp_server_over_standard_input_and_output(serve: Serve) -> None:
    base_url = serve(STDIO, MCP_TASKS)
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="a")
        tools = await session.list_tools()
        assert [tool["name"] for tool in tools] == [
            *("note", "fail", "sleep", "crash", "where", "submit")
        ]
        assert tools[0]["input_schema"]["required"] == ["text"]

        async def call(name: str, **arguments: Any) -> StepOutcome:
            return await session.step(call_tool(name, arguments))

        noted = await call("note", text="one")
        assert KINDS["tools"].segments(noted.observation.fields)[0]["text"] == '["one"]'
        about = data_of(await call("where"))
        assert (about["files"], about["variable"]) == (["data", "server.py"], "hello")
        assert error_of(await call("none"))[0] == "tool_not_found"
        assert "out of order" in error_of(await call("fail"))[1]
        assert error_of(await call("note", text=[1]))[0] in ("execution_error", "invalid_args")
        assert error_of(await call("sleep", seconds=20))[0] == "timeout"
        # Each episode has a process of its own.
        other = await play(base_url, "a", ("note", {"text": "two"}))
        assert "one" not in json.dumps(other[0].observation.fields)
        assert error_of(await call("crash"))[0] == "transport_error"
        assert error_of(await call("note", text="late"))[0] == "transport_error"
        end = await call("submit", answer="done")
        assert (end.reward, end.done) == (1.0, True)


@pytest.mark.slow
async def test_only_the_tools_that_are_offered_can_be_called(serve: Serve) -> None:
    base_url = serve({**STDIO, "offered": ["note"]}, MCP_TASKS)
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="a")
        assert [tool["name"] for tool in await session.list_tools()] == ["note", "submit"]
        refused = await session.step(call_tool("fail", {}))
        assert error_of(refused)[0] == "tool_not_found"


def test_a_command_that_does_not_start_is_told_at_the_start(serve: Serve) -> None:
    with pytest.raises(ServerStartError, match="the MCP server did not start"):
        serve({"server": {"command": ["no-such-program"]}}, MCP_TASKS)


@pytest.mark.slow
async def test_an_mcp_server_by_its_address(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(MCP_SERVER)
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "server.py"), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _listens(port), limit_s=30, what="the MCP server")
        base_url = serve({"server": {"url": f"http://127.0.0.1:{port}/mcp"}}, MCP_TASKS)
        async with EpisodeSession.open(base_url) as session:
            await session.reset(task="a")
            assert len(await session.list_tools()) == 6
            noted = await session.step(call_tool("note", {"text": "one"}))
            assert data_of(noted) == {"result": ["one"]}
            process.kill()
            process.wait()
            lost = await session.step(call_tool("note", {"text": "two"}))
            assert error_of(lost)[0] in ("transport_error", "execution_error", "timeout")
            end = await session.step(call_tool("submit", {"answer": "done"}))
            assert end.reward == 1.0
        async with EpisodeSession.open(base_url) as session:
            with pytest.raises(EpisodeError, match="the MCP server did not") as caught:
                await session.reset(task="a")
        assert caught.value.cause is Cause.RESET_FAILED
    finally:
        process.kill()
        process.wait()


def test_with_a_grader_only_https_can_be_reached(tmp_path: Path) -> None:
    source = {"server": {"url": "http://127.0.0.1:9/mcp"}, "grade": GRADERS["a flag"][0]}

    def spec(source: dict[str, Any], resources: Resources) -> Any:
        return KINDS["tools"].server(
            name="t", source=source, resources=resources, specs=MCP_TASKS, data=tmp_path
        )

    with pytest.raises(ValueError, match=r"only https on port 443.*resources\.network\.mode"):
        spec(source, Resources())
    spec(source, Resources(network=Network("open")))
    secure = {**source, "server": {"url": "https://tools.example.org/mcp"}}
    made = spec(secure, Resources(network=Network("allow-list", ("a.example.org",))))
    (written,) = [part for part in made.command if "service-" in part]
    network = json.loads(Path(written).read_text())["resources"]["network"]
    assert network == {
        "mode": "allow-list",
        "allowed_hosts": ["a.example.org", "tools.example.org"],
    }


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
