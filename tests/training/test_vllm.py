"""Sampling on a vLLM server, over real HTTP against a stand-in that samples from a real model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.vllm_server import NAME, VllmDouble, running
from tests.training.builders import make_step
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.engine.adapters import AdapterError
from training.engine.scheduler import (
    AdapterConflict,
    RequestRefused,
    SampleRequest,
    SampleResult,
    SamplerFault,
    UnknownModel,
)
from training.engine.vllm import VllmSampler
from training.lora import LoraSpec
from training.losses import build_streams
from training.types import ObjectiveSpec, Row, RowStatus, TokenKind
from training.vllm import VllmServer

PROMPT = tuple(range(5, 25))
LIMIT_S = 120.0


@pytest.fixture
def double(tiny_folder: Path) -> Iterator[VllmDouble]:
    with running(tiny_folder) as started:
        yield started


def sampler_of(double: VllmDouble, folder: Path, **options: Any) -> VllmSampler:
    server = VllmServer(double.url, api_key=double.api_key)
    options = {"is_processed": double.is_processed, **options}
    return VllmSampler(server, folder=folder, name="tiny", remote_name=NAME, **options)


@pytest.fixture
def sampler(double: VllmDouble, tiny_folder: Path) -> Iterator[VllmSampler]:
    made = sampler_of(double, tiny_folder)
    yield made
    made.close()


def sample(sampler: VllmSampler, model: str = "tiny", **fields: Any) -> SampleResult:
    fields = {"prompt_ids": PROMPT, "max_tokens": 12, "seed": 4, **fields}
    [future] = sampler.submit(SampleRequest(model=model, deadline_s=LIMIT_S, **fields))
    return future.result(timeout=LIMIT_S)


@pytest.fixture(scope="module")
def published(
    tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Path, LocalSession]]:
    """Four versions of adapters in training, each with the session that stands there."""
    root = tmp_path_factory.mktemp("published")
    spec = ObjectiveSpec(lambda_env=1.0)
    found = []
    for number in range(1, 5):
        session = LocalSession(ModelSpec(tiny_folder, LoraSpec(rank=4, seed=3)))
        for step in range(number):
            rows = make_step(seed=step)
            session.forward_backward(rows, build_streams(rows, spec), spec).result()
            session.optim_step(AdamSpec(learning_rate=3e-2)).result()
        found.append((session.publish(root, number).result().adapter, session))
    return found


def differences(session: LocalSession, result: SampleResult) -> list[float]:
    """Between the log-probs as sampled and those of the trainer, token by token."""
    ids = (*PROMPT, *result.token_ids)
    kinds = (TokenKind.CONTEXT,) * len(PROMPT) + (TokenKind.ACTION,) * len(result.token_ids)
    row = Row("r", "g", 1.0, RowStatus.OK, ids, kinds, None)
    [logprobs] = session.forward([row], temperature=1.0).result()
    trained = logprobs[len(PROMPT) - 1 :]
    return [abs(a - b) for a, b in zip(trained, result.sampling_logprobs, strict=True)]


def test_each_version_samples_with_its_own_weights_and_exact_log_probs(
    double: VllmDouble, sampler: VllmSampler, published: list[tuple[Path, LocalSession]]
) -> None:
    for number, (folder, session) in enumerate(published[:2], start=1):
        name = f"t7-v{number:04d}"
        sampler.add_adapter(name=name, path=folder)
        result = sample(sampler, name)
        assert result.weight_version == name
        assert len(result.token_ids) == len(result.sampling_logprobs) > 0
        assert max(differences(session, result)) < 1e-4
        # It is the adapter: the other version would have said something else.
        other = published[2 - number][1]
        assert max(differences(other, result)) > 1e-3
    base = sample(sampler)
    assert base.weight_version == "tiny"
    assert [asked["model"] for asked in double.asked] == ["t7-v0001", "t7-v0002", NAME]
    assert sampler.counters.requests == 3


def test_seeds_repeat_and_a_generation_config_changes_nothing(
    double: VllmDouble, sampler: VllmSampler
) -> None:
    # The stand-in is greedy for whoever does not say otherwise, as a model's own defaults may be.
    several = {tuple(sample(sampler, seed=seed).token_ids) for seed in range(4)}
    assert len(several) > 1
    assert sample(sampler, seed=1).token_ids == sample(sampler, seed=1).token_ids
    sample(sampler, seed=(5 << 64) + 3)  # of a later choice; vLLM takes 63 bits
    assert double.asked[-1]["seed"] == 3


def test_the_adapter_used_longest_ago_makes_room(
    double: VllmDouble, tiny_folder: Path, published: list[tuple[Path, LocalSession]]
) -> None:
    double.slots = 2
    sampler = sampler_of(double, tiny_folder, max_adapters=2)
    first, second, third, _ = (folder for folder, _ in published)
    for name, folder in (("v1", first), ("v2", second)):
        sampler.add_adapter(name=name, path=folder)
    sample(sampler, "v1")
    sampler.add_adapter(name="v3", path=third)
    assert [card["id"] for card in double.cards()] == [NAME, "v1", "v3"]
    with pytest.raises(UnknownModel, match="'v2' is not served"):
        sample(sampler, "v2")
    sampler.add_adapter(name="v3", path=third)
    assert double.loaded == ["v1", "v2", "v3"]
    assert sampler.remove_adapter("v1")
    assert not sampler.remove_adapter("v1")
    sampler.close()


def test_a_server_that_was_started_anew_gets_the_adapter_again(
    double: VllmDouble, sampler: VllmSampler, published: list[tuple[Path, LocalSession]]
) -> None:
    folder, _ = published[0]
    sampler.add_adapter(name="v1", path=folder)
    before = sample(sampler, "v1")
    double.restart()
    # Never the base model in its place: the client hears it, and brings the adapter.
    with pytest.raises(UnknownModel, match="v1"):
        sample(sampler, "v1")
    sampler.add_adapter(name="v1", path=folder)
    assert sample(sampler, "v1") == before


def test_one_that_serves_it_already_is_taken_at_its_word_about_the_folder(
    double: VllmDouble, tiny_folder: Path, published: list[tuple[Path, LocalSession]]
) -> None:
    (first, _), (second, _), *_ = published
    sampler_of(double, tiny_folder).add_adapter(name="v1", path=first)
    restarted = sampler_of(double, tiny_folder)
    restarted.add_adapter(name="v1", path=first)
    assert double.loaded == ["v1"]
    with pytest.raises(AdapterConflict, match="already loaded from"):
        restarted.add_adapter(name="v1", path=second)
    with pytest.raises(AdapterConflict, match="another adapter"):
        sampler_of(double, tiny_folder).add_adapter(name="v1", path=second)
    with pytest.raises(AdapterConflict, match="base model"):
        restarted.add_adapter(name="tiny", path=second)


@pytest.mark.parametrize(
    ("fault", "expected", "message"),
    [
        (lambda double: setattr(double, "slots", 0), AdapterError, "HTTP 400.*no free slot"),
        (lambda double: setattr(double, "loses_adapters", True), SamplerFault, "is not served"),
    ],
)
def test_an_adapter_that_did_not_arrive_is_noticed(
    double: VllmDouble,
    sampler: VllmSampler,
    published: list[tuple[Path, LocalSession]],
    fault: Callable[[VllmDouble], None],
    expected: type[Exception],
    message: str,
) -> None:
    fault(double)
    with pytest.raises(expected, match=message):
        sampler.add_adapter(name="v1", path=published[0][0])
    with pytest.raises(UnknownModel):
        sample(sampler, "v1")


@pytest.mark.parametrize(
    ("changes", "expected", "message"),
    [
        ({"token_ids": None}, RequestRefused, "no token ids"),
        ({"logprobs": None}, RequestRefused, "no token ids or log-probs"),
        ({"logprobs": {"token_logprobs": [-1.0]}}, RequestRefused, "ids but 1 log-probs"),
        ({"prompt_token_ids": [9]}, RequestRefused, "another prompt"),
        (
            {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, None]}},
            SamplerFault,
            "not finite",
        ),
    ],
)
def test_an_answer_that_cannot_be_trained_on_is_refused(
    double: VllmDouble,
    sampler: VllmSampler,
    changes: dict[str, Any],
    expected: type[Exception],
    message: str,
) -> None:
    double.changes = changes
    with pytest.raises(expected, match=message):
        sample(sampler)


def test_a_temperature_whose_log_probs_are_unknown_is_refused(sampler: VllmSampler) -> None:
    with pytest.raises(RequestRefused, match="processed_logprobs"):
        sample(sampler, temperature=0.7)
    greedy = sample(sampler, temperature=0.0)
    assert set(greedy.sampling_logprobs) == {0.0}
    assert len(greedy.token_logprobs) == len(greedy.token_ids)


def test_processed_log_probs_are_those_of_the_temperature(
    tiny_folder: Path,
) -> None:
    with running(tiny_folder, is_processed=True) as double:
        sampler = sampler_of(double, tiny_folder)
        ours = SampleRequest(
            model="behind", prompt_ids=PROMPT, max_tokens=12, temperature=0.7, seed=4
        )
        expected = double.sampler.submit(ours)[0].result(timeout=LIMIT_S)
        found = sample(sampler, temperature=0.7)
        assert found.token_ids == expected.token_ids
        assert found.sampling_logprobs == expected.sampling_logprobs
        assert found.token_logprobs == []  # not told, hence not made up
        sampler.close()


def test_ends_of_turns_are_told_apart(double: VllmDouble, sampler: VllmSampler) -> None:
    eos, other = sampler.tokenizer.eos_id, 7

    def ended(**fields: Any) -> SampleResult:
        logprobs = {"token_logprobs": [-1.0] * len(fields["token_ids"])}
        double.changes = {"finish_reason": "stop", "stop_reason": None, "logprobs": logprobs}
        double.changes |= fields
        return sample(sampler)

    own = ended(token_ids=[5, eos])
    assert (own.sampled_eos, own.stop_reason, own.finish_reason) == (True, None, "stop")
    # A token of the model's generation_config that ends turns as well, and is not ours.
    foreign = ended(token_ids=[5, other], stop_reason=other)
    assert not foreign.sampled_eos
    assert foreign.stop_reason == sampler.tokenizer.pieces([other])[0]
    string = ended(token_ids=[5, 6], stop_reason="</a>")
    assert (string.sampled_eos, string.stop_reason) == (False, "</a>")
    long = ended(token_ids=[5, 6], finish_reason="length")
    assert (long.finish_reason, long.stop_reason) == ("length", None)


def test_requests_that_cannot_be_served_are_refused_before_they_are_sent(
    double: VllmDouble, sampler: VllmSampler
) -> None:
    for fields, message in (
        ({"prompt_ids": ()}, "no tokens"),
        ({"prompt_ids": (10**6,)}, "token ids must lie"),
        ({"max_tokens": 0}, "at least 1"),
        ({"max_tokens": 10**6}, "context"),
    ):
        with pytest.raises(RequestRefused, match=message):
            sample(sampler, **fields)
    assert double.asked == []


def test_a_server_that_is_not_there_is_named_and_may_come_back(tiny_folder: Path) -> None:
    gone = VllmSampler(VllmServer("http://127.0.0.1:9"), folder=tiny_folder, name="tiny")
    with pytest.raises(SamplerFault, match=r"http://127\.0\.0\.1:9"):
        sample(gone)


def test_a_key_is_sent(tiny_folder: Path) -> None:
    with running(tiny_folder, api_key="secret") as double:
        assert sample(sampler_of(double, tiny_folder)).token_ids
        keyless = VllmSampler(VllmServer(double.url), folder=tiny_folder, name="tiny")
        with pytest.raises(RequestRefused, match="HTTP 401"):
            sample(keyless)
