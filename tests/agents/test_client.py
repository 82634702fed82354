"""Requests to models: what is tried again, what is told at once, and what the messages name."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.agents.client import ChatModel, Endpoint, LocalModel, ModelClient
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Completion, Sampling
from tests.doubles.model_server import Asked, Raw, Reply, ScriptedModel, encode, refusal, render
from tests.live import free_port

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
SAMPLING = Sampling(temperature=0.7, max_tokens=20, stop=("\n",))
BUSY = Raw(503, '{"error": {"message": "starting"}}')


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda asked: "hi") as served:
        yield served


def ask(
    server: ScriptedModel | str,
    /,
    *,
    is_chat: bool = False,
    retry_for_s: float = 5.0,
    **endpoint: Any,
) -> Completion:
    """One completion, as a rollout asks for it."""

    async def run() -> Completion:
        url = server if isinstance(server, str) else server.url
        async with ModelClient(
            Endpoint(**{"base_url": url, "model": "scripted", **endpoint}), retry_for_s=retry_for_s
        ) as client:
            if is_chat:
                return await ChatModel(client).complete(MESSAGES, SAMPLING, seed=3)
            return await LocalModel(client).complete(encode(render(MESSAGES)), SAMPLING, seed=3)

    return asyncio.run(run())


def refused(*args: Any, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(*args, **options)
    return caught.value


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_completion_has_its_text_and_counts(model: ScriptedModel, is_chat: bool) -> None:
    completion = ask(model, is_chat=is_chat)
    assert (completion.text, completion.finish_reason) == ("hi", "stop")
    assert completion.tokens_in > completion.tokens_out > 0
    assert completion.weight_version == "scripted"
    (asked,) = model.asked
    assert asked.messages == [("system", "Be brief."), ("user", "Hello?")]
    sent = {name: asked.body[name] for name in ("max_tokens", "temperature", "stop", "seed")}
    assert sent == {"max_tokens": 20, "temperature": 0.7, "stop": ["\n"], "seed": 3}


@pytest.mark.parametrize(
    ("text", "said", "reason", "ended_turn"),
    [
        ("hi", "hi", "stop", True),
        ("hi\nthere", "hi", "stop", False),
        ("x" * 30, "x" * 20, "length", False),
    ],
)
def test_how_an_action_ended_is_known(
    model: ScriptedModel, text: str, said: str, reason: str, ended_turn: bool
) -> None:
    model.script = lambda asked: text
    completion = ask(model)
    assert (completion.text, completion.finish_reason) == (said, reason)
    assert completion.ended_turn is ended_turn
    assert len(completion.logprobs) == len(completion.token_ids) == completion.tokens_out


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(model: ScriptedModel, status: int) -> None:
    model.failures = [Raw(status, "busy"), Raw(status, "busy")]
    assert ask(model).text == "hi"
    assert len(model.asked) == 1


def test_a_server_that_stays_busy_is_given_up_at_the_limit(model: ScriptedModel) -> None:
    model.failures = [BUSY] * 50
    error = refused(model, retry_for_s=0.6)
    assert error.cause == "model_overloaded"
    for word in (model.url, "0.6 s", "503"):
        assert word in str(error)


def test_a_server_that_is_away_is_waited_for_until_the_limit() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    started = time.monotonic()
    error = refused(url, retry_for_s=0.6)
    assert 0.3 < time.monotonic() - started < 2.0
    assert error.cause == "model_unreachable"
    for word in (url, "0.6 s", "Is the model server running?"):
        assert word in str(error)


def test_the_deadline_holds_for_a_request_under_way(model: ScriptedModel) -> None:
    """The last try gets what is left of the limit, not a whole time-out of its own."""
    released = threading.Event()

    def script(asked: Asked) -> str:
        released.wait(5)
        return "late"

    model.script = script
    started = time.monotonic()
    error = refused(model, retry_for_s=0.5)
    released.set()
    assert time.monotonic() - started < 2.0
    assert error.cause == "model_timeout"
    for word in ("scripted", model.url, "0.5 s"):
        assert word in str(error)


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_refusal_is_told_at_once_in_the_servers_words(
    model: ScriptedModel, is_chat: bool
) -> None:
    model.script = lambda asked: refusal(400, "max_tokens: at most 10")
    error = refused(model, is_chat=is_chat)
    assert error.cause == "model_refused"
    for word in ("scripted", model.url, "HTTP 400", "max_tokens: at most 10"):
        assert word in str(error)
    assert len(model.asked) == 1


def test_a_refusal_without_json_is_told_as_it_came(model: ScriptedModel) -> None:
    model.script = lambda asked: Raw(500, "Internal Server Error" + "!" * 1000)
    error = refused(model)
    assert "Internal Server Error" in str(error)
    assert len(str(error)) < 500


def test_an_overlong_prompt_has_a_cause_of_its_own(model: ScriptedModel) -> None:
    model.script = lambda asked: refusal(400, "3000 tokens", "context_length_exceeded")
    assert refused(model).cause == "context_overflow"


@pytest.mark.parametrize("base_url", ["", "localhost:1", "ftp://host"])
def test_an_address_that_is_none_is_told_at_once(base_url: str) -> None:
    started = time.monotonic()
    error = refused(base_url)
    assert "is not an http(s) address" in str(error)
    assert time.monotonic() - started < 1.0


@pytest.mark.parametrize("text", ["<html>", "[1, 2]", "{}", '{"choices": []}', '{"choices": [7]}'])
@pytest.mark.parametrize("is_chat", [True, False])
def test_an_answer_of_another_shape(model: ScriptedModel, is_chat: bool, text: str) -> None:
    model.script = lambda asked: Raw(200, text)
    error = refused(model, is_chat=is_chat)
    assert error.cause == "model_reply_invalid"
    assert model.url in str(error)


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": None},
        {"logprobs": None},
        {"logprobs": {"sampling_logprobs": [-0.1]}},
        {"text": None},
    ],
)
def test_an_answer_without_what_training_needs(
    model: ScriptedModel, changes: dict[str, Any]
) -> None:
    model.script = lambda asked: Reply("hello", changes=changes)
    error = refused(model)
    assert error.cause == "model_reply_invalid"
    assert model.url in str(error)


def test_a_chat_answer_without_content_or_usage_is_an_empty_text(model: ScriptedModel) -> None:
    model.script = lambda asked: Raw(
        200, '{"choices": [{"message": {"content": null}}], "usage": []}'
    )
    completion = ask(model, is_chat=True)
    assert (completion.text, completion.tokens_out) == ("", 0)


def test_a_key_goes_with_every_request_and_never_into_a_message() -> None:
    error = refused(f"http://127.0.0.1:{free_port()}", retry_for_s=0.1, api_key="sk-secret")
    assert "sk-secret" not in str(error)


# --- adapters -----------------------------------------------------------------------------------


def test_an_adapter_that_the_server_lost_is_registered_again(model: ScriptedModel) -> None:
    adapter: dict[str, Any] = {"model": "t1-v2", "adapter_path": "/data/training/1/adapter"}
    assert ask(model, **adapter).weight_version == "t1-v2"
    model.adapters.clear()  # the server was started again
    assert ask(model, **adapter).weight_version == "t1-v2"
    assert model.registrations == [("t1-v2", "/data/training/1/adapter")] * 2


def test_an_unknown_model_without_an_adapter_is_refused_at_once(model: ScriptedModel) -> None:
    error = refused(model, model="other")
    assert (error.cause, model.registrations) == ("model_refused", [])
    assert "unknown model 'other'" in str(error)


def test_many_rollouts_at_once_share_a_client(model: ScriptedModel) -> None:
    async def run() -> list[str]:
        endpoint = Endpoint(model.url, "t1-v1", adapter_path="/a")
        async with ModelClient(endpoint) as client, asyncio.TaskGroup() as group:
            local = LocalModel(client)
            tasks = [
                group.create_task(local.complete(encode("x"), SAMPLING, seed=i)) for i in range(40)
            ]
        return [task.result().weight_version for task in tasks]

    assert asyncio.run(run()) == ["t1-v1"] * 40
