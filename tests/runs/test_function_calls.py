"""Agents that act by calls: functions where the model takes them, text where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from orchestrator.runs import engine
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState
from tests.base import People
from tests.doubles.model_server import Asked, Reply, ScriptedModel
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel, MakeServer
from tests.runs.drive import events, execute, make_endpoint, make_run, make_version, rollouts

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]
FUNCTIONS = '''
def price(state, item: str) -> float:
    """The price of an item."""
    return state["prices"][item]
'''


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def make_tools(people: People) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=people.project, slug="shop", name="Shop", kind=EnvironmentKind.TOOLS
    )
    return create_version(
        environment=environment,
        source={"functions": FUNCTIONS},
        tasks=[
            NewTask(
                key="pen",
                split="test",
                prompt="What does a pen cost?",
                reset={"task": "pen"},
                spec={"state": {"prices": {"pen": 2.5}}, "answer": 2.5},
            )
        ],
    )


def chat(people: People, model: ScriptedModel, **fields: Any) -> ModelEndpoint:
    return make_endpoint(people.project, model.url, kind=EndpointKind.OPENAI, **fields)


def run_once(people: People, endpoint: ModelEndpoint, **spec: Any) -> tuple[Run, Rollout]:
    run = execute(make_run(people.project, version=make_tools(people), model=endpoint, **spec))
    (rollout,) = rollouts(run)
    return run, rollout


def calls_then(*replies: Reply) -> Any:
    """One reply after another; the request that asks for support is answered as it is."""
    left = iter(replies)

    def script(asked: Asked) -> str | Reply:
        return "yes" if "ready" in asked.messages[0][1] else next(left)

    return script


def test_a_model_that_takes_functions_calls_them(
    people: People, make_model: MakeModel, client: Client
) -> None:
    model = make_model(
        calls_then(
            Reply("I look it up.", calls=[("price", '{"item": "pen"}')]),
            Reply("", calls=[("submit", '{"answer": 2.5}')]),
        )
    )
    endpoint = chat(people, model)
    run, rollout = run_once(people, endpoint)
    assert (run.state, rollout.score, rollout.answer) == (RunState.COMPLETED, 1.0, "2.5")
    (told,) = events(rollout.stream_id, "told")
    names = [f["function"]["name"] for f in told.payload["functions"]]
    assert (names, told.payload["text"]) == (["price", "submit"], "")
    first, last = (event.payload for event in events(rollout.stream_id, "action"))
    assert first["text"] == 'I look it up.\nprice {"item": "pen"}'
    assert (first["form"], last["form"], last["answer"]) == ("call", "call", "2.5")
    # What was asked: support, the first action, the second with the answer of the first.
    _, _, again = model.asked
    assert [role for role, _ in again.messages] == ["system", "user", "assistant", "tool"]
    assert again.messages[1] == ("user", "What does a pen cost?")
    assert again.messages[-1] == ("tool", "2.5")
    endpoint.refresh_from_db()
    assert endpoint.supports_tools is True
    client.force_login(people.member)
    page = client.get(f"/p/{people.project.pk}/rollouts/{rollout.pk}/").content.decode()
    assert "2 functions that the model may call" in page
    assert "The price of an item." in page


def test_a_model_that_does_not_is_told_in_words(people: People, make_model: MakeModel) -> None:
    replies = iter(["price pen", 'submit {"answer": 2.5}'])
    model = make_model(lambda asked: next(replies), takes_functions=False)
    endpoint = chat(people, model)
    _, rollout = run_once(people, endpoint)
    assert (rollout.state, rollout.score) == (RolloutState.SCORED, 1.0)
    assert "- price: The price of an item." in model.asked[0].messages[0][1]
    assert "tools" not in model.asked[0].body
    endpoint.refresh_from_db()
    assert endpoint.supports_tools is False


def test_the_local_model_writes_calls_as_text(people: People, make_model: MakeModel) -> None:
    replies = iter(["price item=pen", "submit 2.5"])
    model = make_model(lambda asked: next(replies))
    _, rollout = run_once(people, make_endpoint(people.project, model.url))
    assert (rollout.state, rollout.score) == (RolloutState.SCORED, 1.0)
    (row,) = rollout.token_rows.all()
    assert {kind for kind, _ in row.kinds} == {"context", "action", "env_output", "scaffold"}


def test_malformed_arguments_are_refused_with_the_reason(
    people: People, make_model: MakeModel
) -> None:
    model = make_model(
        calls_then(
            Reply("", calls=[("price", '{"item": '), ("price", '{"item": "pen"}')]),
            Reply("", calls=[("submit", '{"answer": 2.5}')]),
        )
    )
    _, rollout = run_once(people, chat(people, model, supports_tools=True))
    assert (rollout.state, rollout.score, rollout.n_steps) == (RolloutState.SCORED, 1.0, 1)
    refused = events(rollout.stream_id, "observation")[0].payload
    assert refused["refused"] is True
    (segment,) = refused["segments"]
    assert "arguments of price: not a JSON object (Expecting value" in segment["text"]
    answers = [content for role, content in model.asked[1].messages if role == "tool"]
    assert answers == [segment["text"], "(not run: an earlier call of the same reply ended it)"]


def test_several_calls_of_a_reply_are_made_in_order(people: People, make_model: MakeModel) -> None:
    model = make_model(
        calls_then(
            Reply("", calls=[("price", '{"item": "cup"}'), ("price", '{"item": "pen"}')]),
            Reply("", calls=[("submit", '{"answer": 2.5}'), ("price", '{"item": "pen"}')]),
        )
    )
    _, rollout = run_once(people, chat(people, model, supports_tools=True))
    assert (rollout.score, rollout.n_steps) == (1.0, 3)
    actions = [event.payload for event in events(rollout.stream_id, "action")]
    assert [a["step"] for a in actions] == [1, 2, 3]
    # A reply is paid for once, with its first action.
    assert actions[1]["latency_s"] == 0.0 < actions[0]["latency_s"]
    first = events(rollout.stream_id, "observation")[0].payload
    assert "KeyError" in first["tool_error"]
    answers = [content for role, content in model.asked[1].messages if role == "tool"]
    assert answers == ["error (execution_error): KeyError: 'cup'", "2.5"]


def test_a_harness_describes_tools_in_its_own_words(people: People, make_model: MakeModel) -> None:
    model = make_model(calls_then(Reply("", calls=[("submit", '{"answer": 2.5}')])))
    harness = store_harness(
        project_id=people.project.pk,
        harness=Harness(tools=({"name": "price", "description": "Costs nothing to ask."},)),
    )
    run_once(people, chat(people, model, supports_tools=True), harness=harness)
    price = model.asked[0].body["tools"][0]["function"]
    assert price["description"] == "Costs nothing to ask."


def test_instructions_say_where_the_actions_are_described(
    people: People, make_model: MakeModel
) -> None:
    model = make_model(lambda asked: "submit 2.5", takes_functions=False)
    harness = store_harness(
        project_id=people.project.pk,
        harness=Harness(instructions="First.\n{actions}\nLast.\n"),
    )
    run_once(people, chat(people, model, supports_tools=False), harness=harness)
    system = model.asked[0].messages[0][1]
    assert system.startswith("First.\nAct by calling one tool")
    assert system.endswith("\nLast.")


def test_an_unknown_schema_is_offered_as_a_function(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    finish = json.dumps({"op": "noop", "reward": 1.0, "done": True})
    model = make_model(calls_then(Reply("", calls=[("act", finish)])))
    endpoint = chat(people, model, supports_tools=True)
    version = make_version(people.project, fault_url, tasks=1)
    run = execute(make_run(people.project, version=version, model=endpoint))
    (rollout,) = rollouts(run)
    assert (rollout.state, rollout.score) == (RolloutState.SCORED, 1.0)
    (function,) = model.asked[0].body["tools"]
    assert function["function"]["name"] == "act"
    assert "metadata" not in function["function"]["parameters"]["properties"]


def test_a_server_of_tools_that_nobody_knows_is_asked_for_them(
    people: People, make_server: MakeServer, make_model: MakeModel
) -> None:
    server = make_server(target="fault_mcp_env")
    model = make_model(calls_then(*[Reply("", calls=[("fast", "{}")])] * 9))
    endpoint = chat(people, model, supports_tools=True)
    version = make_version(people.project, server.base_url, tasks=1, max_steps=2)
    run = execute(make_run(people.project, version=version, model=endpoint))
    (rollout,) = rollouts(run)
    # Its tools give no reward, which is no zero.
    assert (rollout.state, rollout.cause) == (RolloutState.ERRORED, "reward_missing")
    assert rollout.n_steps == 2
    names = [tool["function"]["name"] for tool in model.asked[0].body["tools"]]
    assert names == ["fast", "slow"]
    assert model.asked[1].messages[-1] == ("tool", "ok")
