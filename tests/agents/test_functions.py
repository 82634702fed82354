"""Functions offered to models over real HTTP: what is sent, what comes back, who takes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.agents.client import ChatModel, Endpoint, ModelClient
from orchestrator.agents.conversation import NOT_RUN, ChatConversation
from orchestrator.agents.errors import ModelError
from orchestrator.agents.functions import FunctionSupport
from orchestrator.agents.types import Completion, Function, FunctionCall, Sampling, Segment
from tests.doubles.model_server import Raw, Reply, ScriptedModel

SAMPLING = Sampling(max_tokens=40, stop=("\n",))
MESSAGES = [{"role": "user", "content": "What is a pen?"}]
PRICE = Function("price", "The price.", {"type": "object", "properties": {}})
PEN = ("price", '{"item": "pen"}')
CUP = ("price", '{"item": "cup"}')


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda asked: "") as served:
        yield served


def converse(model: ScriptedModel, *answers: list[list[Segment]]) -> list[Completion]:
    """A reply, what its calls brought, the next reply, and so on."""

    async def run() -> list[Completion]:
        async with ModelClient(Endpoint(model.url, "scripted")) as client:
            conversation = ChatConversation(ChatModel(client), SAMPLING)
            await conversation.start(MESSAGES, [PRICE])
            said = [await conversation.act(seed=0)]
            for answer in answers:
                await conversation.observe_calls(answer)
                said.append(await conversation.act(seed=1))
            return said

    return asyncio.run(run())


def test_calls_are_read_and_answered_one_by_one(model: ScriptedModel) -> None:
    replies = iter([Reply("Let me see.", calls=[PEN, CUP]), Reply("2.5")])
    model.script = lambda asked: next(replies)
    first, last = converse(
        model, [[Segment("env_output", "2.5")], [Segment("warning", "(no"), Segment("x", " cup)")]]
    )
    assert [(c.name, c.arguments) for c in first.calls] == [PEN, CUP]
    assert (first.text, first.finish_reason) == ("Let me see.", "tool_calls")
    assert (last.text, last.calls) == ("2.5", ())
    body = model.asked[0].body
    assert body["tools"] == [PRICE.as_json()]
    assert "stop" not in body
    _, said, pen, cup = model.asked[1].body["messages"]
    assert said["content"] == "Let me see."
    assert [call["id"] for call in said["tool_calls"]] == [c.id for c in first.calls]
    assert pen == {"role": "tool", "tool_call_id": first.calls[0].id, "content": "2.5"}
    assert cup["content"] == "(no cup)"


def test_a_call_that_was_not_run_is_answered_too(model: ScriptedModel) -> None:
    replies = iter([Reply("", calls=[PEN, CUP]), Reply("ok")])
    model.script = lambda asked: next(replies)
    converse(model, [[Segment("warning", "(refused)")]])
    contents = [m["content"] for m in model.asked[1].body["messages"] if m["role"] == "tool"]
    assert contents == ["(refused)", NOT_RUN]


@pytest.mark.parametrize("arguments", ['{"item": ', "[1]", "null", "", '{"a": NaN}'])
def test_unreadable_arguments_go_back_as_json(model: ScriptedModel, arguments: str) -> None:
    """Endpoints parse the history; one bad call must not end the conversation."""
    replies = iter([Reply("", calls=[("price", arguments)]), Reply("ok")])
    model.script = lambda asked: next(replies)
    first, last = converse(model, [[Segment("warning", "(not JSON)")]])
    assert first.calls[0].arguments == arguments
    assert last.text == "ok"
    said = model.asked[1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(said) == {"unreadable": arguments}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"function": {"name": "a", "arguments": {"x": 1}}}, ("call_0", "a", '{"x": 1}')),
        ({"id": None, "function": {"name": "a"}}, ("call_0", "a", "{}")),
        ({"id": "7", "function": {"name": "a", "arguments": "{}"}}, ("7", "a", "{}")),
    ],
)
def test_what_servers_do_otherwise_is_understood(
    model: ScriptedModel, call: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    model.script = lambda asked: Reply("", changes={"message": message})
    (completion,) = converse(model)
    assert completion.calls == (FunctionCall(*expected),)


@pytest.mark.parametrize("calls", [[{}], [{"function": {}}], ["price"], 3, [None]])
def test_calls_of_no_shape_are_an_error_of_the_endpoint(model: ScriptedModel, calls: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    model.script = lambda asked: Reply("", changes={"message": message})
    with pytest.raises(ModelError) as caught:
        converse(model)
    assert caught.value.cause == "model_reply_invalid"


def support(model: ScriptedModel, flag: bool | None, times: int = 1) -> tuple[list[bool], Any]:
    async def run() -> tuple[list[bool], Any]:
        async with ModelClient(Endpoint(model.url, "scripted"), retry_for_s=0.2) as client:
            asked = FunctionSupport(client, flag)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(asked.known()) for _ in range(times)]
            return [task.result() for task in tasks], asked.learned

    return asyncio.run(run())


@pytest.mark.parametrize("takes", [True, False])
def test_whether_a_model_takes_functions_is_asked_once(takes: bool) -> None:
    with ScriptedModel(lambda asked: "yes", takes_functions=takes) as model:
        assert support(model, None, times=8) == ([takes] * 8, takes)
        assert len(model.asked) == (1 if takes else 0)


@pytest.mark.parametrize("flag", [True, False])
def test_what_a_person_has_said_is_not_asked(model: ScriptedModel, flag: bool) -> None:
    assert support(model, flag) == ([flag], None)
    assert model.asked == []


def test_an_endpoint_that_is_away_says_nothing_of_functions(model: ScriptedModel) -> None:
    model.failures = [Raw(503)] * 20
    with pytest.raises(ExceptionGroup) as caught:
        support(model, None)
    (error,) = caught.value.exceptions
    assert isinstance(error, ModelError)
    assert error.cause == "model_overloaded"
