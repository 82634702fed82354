"""A conversation as tokens: each prompt is exactly what came before, plus what is new."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agents.client import ChatModel, Endpoint, LocalModel, ModelClient
from orchestrator.agents.conversation import ChatConversation, TokenConversation
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Sampling, Segment, TokenTrack
from tests.doubles.model_server import LOGPROB, Asked, Raw, Reply, ScriptedModel, decode, render

MESSAGES = [
    {"role": "system", "content": "One line."},
    {"role": "user", "content": "example"},
    {"role": "assistant", "content": "ls"},
    {"role": "user", "content": "the task"},
]
SAMPLING = Sampling(max_tokens=12, stop=("\n",))
OUTPUT = Segment("env_output", "a.txt")
REMARK = Segment("scaffold", "\n(exit status 1)")


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda asked: "") as served:
        yield served


def converse(
    model: ScriptedModel, actions: Sequence[str], observations: Sequence[Sequence[Segment]]
) -> tuple[list[TokenTrack], list[Asked]]:
    """The actions with the observations in between; tracks, and what the model was asked."""
    said = iter(actions)
    model.script = lambda asked: next(said)
    model.asked.clear()

    async def run() -> list[TokenTrack]:
        async with ModelClient(Endpoint(model.url, "scripted")) as client:
            conversation = TokenConversation(LocalModel(client), SAMPLING)
            await conversation.start(MESSAGES)
            for number, _ in enumerate(actions):
                if number:
                    await conversation.observe(observations[number - 1])
                await conversation.act(seed=number)
            return conversation.tracks()

    return asyncio.run(run()), list(model.asked)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
SEGMENT = st.builds(Segment, st.sampled_from(["env_output", "warning", "scaffold"]), TEXT)


@settings(max_examples=25, deadline=None)
@given(
    actions=st.lists(TEXT, min_size=1, max_size=4),
    observations=st.lists(st.lists(SEGMENT, max_size=3), min_size=4, max_size=4),
)
def test_every_prompt_extends_the_one_before_exactly(
    model: ScriptedModel, actions: list[str], observations: list[list[Segment]]
) -> None:
    (track,), asked = converse(model, actions, observations)
    assert len(track.ids) == len(track.kinds)
    assert track.kinds.count("action") == len(track.logprobs)
    for earlier, later in pairwise(asked):
        assert list(later.ids[: len(earlier.ids)]) == list(earlier.ids)
    assert track.ids[: len(asked[-1].ids)] == list(asked[-1].ids)
    assert track.kinds[: len(asked[0].ids)] == ["context"] * len(asked[0].ids)
    for kind in ("env_output", "warning"):
        shown = [
            s.text for part in observations[: len(actions) - 1] for s in part if s.kind == kind
        ]
        ids = [i for i, k in zip(track.ids, track.kinds, strict=True) if k == kind]
        assert ids == [ord(c) for c in "".join(shown)]


def test_a_conversation_reads_as_the_template_writes_it(model: ScriptedModel) -> None:
    (track,), _ = converse(model, ["cat", "answer: 3"], [[OUTPUT, REMARK]])
    told = [
        *MESSAGES,
        {"role": "assistant", "content": "cat"},
        {"role": "user", "content": "a.txt\n(exit status 1)"},
    ]
    assert decode(track.ids) == render(told) + "answer: 3<|end|>"
    assert set(track.logprobs) == {LOGPROB}
    assert track.weight_version == "scripted"


def test_demonstrations_are_context_and_not_the_agents_actions(model: ScriptedModel) -> None:
    (track,), asked = converse(model, ["ls"], [])
    assert "ls" in decode(track.ids[: len(asked[0].ids)])
    assert track.kinds.count("action") == len("ls") + 1


def test_an_action_cut_by_its_limit_is_closed_before_the_reply(model: ScriptedModel) -> None:
    (track,), _ = converse(model, ["x" * 50, "ok"], [[OUTPUT]])
    assert f"{'x' * 12}<|end|>\n<|begin|>user\na.txt<|end|>" in decode(track.ids)
    # The model did not say that its turn was over, so that token is not its action.
    assert track.kinds.count("action") == 12 + len("ok") + 1


def test_nothing_sampled_leaves_no_track(model: ScriptedModel) -> None:
    model.script = lambda asked: Reply(
        "", changes={"token_ids": [], "logprobs": {"sampling_logprobs": []}}
    )

    async def run() -> list[TokenTrack]:
        async with ModelClient(Endpoint(model.url, "scripted")) as client:
            conversation = TokenConversation(LocalModel(client), SAMPLING)
            await conversation.start(MESSAGES)
            before = conversation.tracks()
            await conversation.act(seed=0)
            return before + conversation.tracks()

    assert asyncio.run(run()) == []


def test_a_server_without_tokens_says_what_its_answer_lacks() -> None:
    class Plain(ScriptedModel):
        def answer(self, path: str, body: dict[str, object]) -> Raw:
            return Raw(200, '{"choices": []}')

    async def run(url: str) -> None:
        async with ModelClient(Endpoint(url, "scripted")) as client:
            await TokenConversation(LocalModel(client), SAMPLING).start(MESSAGES)

    with Plain(lambda asked: "") as served, pytest.raises(ModelError, match="token ids") as caught:
        asyncio.run(run(served.url))
    assert caught.value.cause == "model_reply_invalid"
    assert served.url in str(caught.value)


def test_a_text_conversation_sends_all_turns_each_time(model: ScriptedModel) -> None:
    model.asked.clear()
    model.script = lambda asked: "cat"

    async def run() -> list[TokenTrack]:
        async with ModelClient(Endpoint(model.url, "scripted")) as client:
            conversation = ChatConversation(ChatModel(client), SAMPLING)
            await conversation.start(MESSAGES)
            await conversation.act(seed=0)
            await conversation.observe([OUTPUT, REMARK])
            await conversation.act(seed=1)
            return conversation.tracks()

    assert asyncio.run(run()) == []
    assert model.asked[1].messages == [
        *[(m["role"], m["content"]) for m in MESSAGES],
        ("assistant", "cat"),
        ("user", "a.txt\n(exit status 1)"),
    ]
