"""What the sampler promises: the trainer's numbers, and results that do not depend on company."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.engine.adapters import AdapterError
from training.engine.scheduler import (
    AdapterConflict,
    DeadlineExceeded,
    Limits,
    RequestRefused,
    Sampler,
    SamplerBusy,
    SampleRequest,
    SampleResult,
    UnknownModel,
)
from training.llama import Llama, forward_causal, load_llama

SHARED = tuple(random.Random(0).choices(range(3, 250), k=60))


def prompt(seed: int, length: int = 20, *, shared: tuple[int, ...] = SHARED) -> tuple[int, ...]:
    return shared + tuple(random.Random(seed).choices(range(3, 250), k=length))


def request(number: int = 0, /, **changes: object) -> SampleRequest:
    base = SampleRequest("tiny", prompt(number), max_tokens=12, temperature=1.0, seed=number)
    return replace(base, **changes)  # type: ignore[arg-type]  # keywords are the fields


def sample(sampler: Sampler, *requests: SampleRequest) -> list[SampleResult]:
    return [future.result(30) for future in sampler.submit(*requests)]


def recomputed(
    model: Llama, ids: tuple[int, ...], result: SampleResult, temperature: float
) -> list[float]:
    """Log-probabilities of the sampled tokens by the training model."""
    with torch.inference_mode():
        hidden = forward_causal(model, torch.tensor([*ids, *result.token_ids]))
        logprobs = (model.lm_head(hidden) / temperature).log_softmax(-1)
    start = len(ids) - 1
    return [logprobs[start + i, token].item() for i, token in enumerate(result.token_ids)]


def merged(folder: Path, adapter: Path) -> Llama:
    """The training model with an adapter added to its weights."""
    from safetensors.torch import load_file

    model = load_llama(folder)
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name, module in model.named_modules():
        key = f"base_model.model.{name}"
        if f"{key}.lora_A.weight" in tensors:
            update = tensors[f"{key}.lora_B.weight"] @ tensors[f"{key}.lora_A.weight"] * 2.0
            module.weight.data += update
    return model


def test_logprobs_are_those_of_the_training_model(sampler: Sampler, tiny_folder: Path) -> None:
    model = load_llama(tiny_folder)
    requests = [request(i, temperature=t) for i, t in enumerate([1.0, 0.7, 1.0, 1.5, 0.7, 1.0])]
    for asked, result in zip(requests, sample(sampler, *requests), strict=True):
        ids = asked.prompt_ids
        assert result.token_logprobs == pytest.approx(recomputed(model, ids, result, 1), abs=1e-4)
        expected = recomputed(model, ids, result, asked.temperature)
        assert result.sampling_logprobs == pytest.approx(expected, abs=1e-4)


def test_greedy_results_do_not_depend_on_the_batch(tiny_folder: Path, sampler: Sampler) -> None:
    requests = [request(i, temperature=0.0, max_tokens=5 + i) for i in range(16)]
    together = sample(sampler, *requests)
    alone = Sampler(tiny_folder, name="tiny")
    try:
        for asked, result in zip(requests, together, strict=True):
            assert sample(alone, asked)[0].token_ids == result.token_ids
    finally:
        alone.close()
    assert {tuple(result.sampling_logprobs) for result in together} != {()}
    assert all(value == 0.0 for result in together for value in result.sampling_logprobs)


def test_greedy_tokens_are_the_most_likely_of_the_training_model(
    sampler: Sampler, tiny_folder: Path
) -> None:
    model = load_llama(tiny_folder)
    asked = request(5, temperature=0.0)
    ids = list(asked.prompt_ids)
    with torch.inference_mode():
        for token in sample(sampler, asked)[0].token_ids:
            assert (
                int(model.lm_head(forward_causal(model, torch.tensor(ids))[-1]).argmax()) == token
            )
            ids.append(token)


def test_a_seeded_row_draws_the_same_among_different_neighbours(
    sampler: Sampler, tiny_folder: Path
) -> None:
    asked = request(3, seed=42, max_tokens=20)
    alone = sample(sampler, asked)[0]
    neighbours = [request(i, seed=i, max_tokens=3 + i) for i in range(20, 30)]
    among = sample(sampler, *neighbours[:5], asked, *neighbours[5:])[5]
    assert among.token_ids == alone.token_ids
    assert among.token_logprobs == pytest.approx(alone.token_logprobs, abs=1e-5)
    assert sample(sampler, replace(asked, seed=43))[0].token_ids != alone.token_ids


def test_samples_of_one_prompt_compute_it_once(sampler: Sampler) -> None:
    sample(sampler, *[request(1, seed=i) for i in range(8)])
    # The prompt, and its last token again for each of the seven that copied the rest.
    assert sampler.counters.prefill_tokens == len(prompt(1)) + 7


def test_prompts_with_a_common_beginning_share_it(sampler: Sampler) -> None:
    sample(sampler, *[request(i) for i in range(6)])
    assert sampler.counters.prefixes_made == 1
    assert sampler.counters.prefill_tokens < len(SHARED) + 6 * 21


def test_a_follow_up_reuses_the_conversation_and_gives_the_trainers_numbers(
    sampler: Sampler, tiny_folder: Path
) -> None:
    model = load_llama(tiny_folder)
    sample(sampler, *[request(i) for i in range(4)])
    first = sample(sampler, request(9))[0]
    longer = (*prompt(9), *first.token_ids, 7, 8, 9)
    before = sampler.counters.prefill_tokens
    second = sample(sampler, request(9, prompt_ids=longer))[0]
    # Three new tokens, and the last sampled one, which was never fed.
    assert sampler.counters.prefill_tokens - before <= 4
    assert second.reused_tokens >= len(longer) - 4
    assert second.token_logprobs == pytest.approx(recomputed(model, longer, second, 1), abs=1e-4)


def test_rows_of_several_adapters_and_the_base_share_a_batch(
    sampler: Sampler, tiny_folder: Path, make_adapter: Callable[[int], Path]
) -> None:
    folders = {f"a{seed}": make_adapter(seed) for seed in (1, 2)}
    models = {"tiny": load_llama(tiny_folder)}
    for name, folder in folders.items():
        sampler.add_adapter(name=name, path=folder)
        models[name] = merged(tiny_folder, folder)
    requests = [request(i, model=["tiny", "a1", "a2"][i % 3]) for i in range(12)]
    for asked, result in zip(requests, sample(sampler, *requests), strict=True):
        expected = recomputed(models[asked.model], asked.prompt_ids, result, 1)
        assert result.token_logprobs == pytest.approx(expected, abs=2e-4)
        assert result.weight_version == asked.model


def test_a_name_used_again_for_another_adapter_sees_nothing_of_the_first(
    sampler: Sampler, tiny_folder: Path, make_adapter: Callable[[int], Path]
) -> None:
    for seed in (1, 2):
        folder = make_adapter(seed)
        sampler.add_adapter(name="a", path=folder)
        asked = request(4, model="a")
        result = sample(sampler, asked)[0]
        expected = recomputed(merged(tiny_folder, folder), asked.prompt_ids, result, 1)
        assert result.token_logprobs == pytest.approx(expected, abs=2e-4)
        assert sampler.remove_adapter("a")
    with pytest.raises(UnknownModel):
        sampler.submit(request(model="a"))


def test_a_taken_adapter_name_is_a_conflict_and_the_same_folder_is_not(
    sampler: Sampler, make_adapter: Callable[[int], Path]
) -> None:
    folder = make_adapter(1)
    sampler.add_adapter(name="a", path=folder)
    sampler.add_adapter(name="a", path=folder)
    with pytest.raises(AdapterConflict, match="already loaded"):
        sampler.add_adapter(name="a", path=make_adapter(2))
    with pytest.raises(AdapterConflict, match="base model"):
        sampler.add_adapter(name="tiny", path=folder)
    with pytest.raises(AdapterError, match="cannot read"):
        sampler.add_adapter(name="b", path=folder / "missing")


def test_a_stop_string_ends_the_row_but_not_before_its_tokens_are_kept(sampler: Sampler) -> None:
    free = sample(sampler, request(2, seed=5, max_tokens=24))[0]
    text = sampler.tokenizer.decode(free.token_ids)
    stop = text[6:9]
    cut = sample(sampler, request(2, seed=5, max_tokens=24, stop=(stop,)))[0]
    assert cut.finish_reason == "stop"
    assert cut.stop_reason == stop
    assert cut.text == text[: text.index(stop)]
    assert cut.token_ids == free.token_ids[: len(cut.token_ids)]
    assert stop in sampler.tokenizer.decode(cut.token_ids)
    assert stop not in sampler.tokenizer.decode(cut.token_ids[:-1])


def test_the_end_of_turn_token_ends_the_row_and_is_kept(
    sampler: Sampler, tiny_folder: Path
) -> None:
    eos = sampler.tokenizer.eos_id
    ended = [
        result
        for result in sample(
            sampler, *[request(i, temperature=3.0, max_tokens=200) for i in range(30)]
        )
        if result.sampled_eos
    ]
    assert ended, "the random model never ends a turn: choose other seeds"
    for result in ended:
        assert result.token_ids[-1] == eos
        assert eos not in result.token_ids[:-1]
        assert (result.finish_reason, result.stop_reason) == ("stop", None)


def test_rows_longer_than_a_prefill_slice_give_the_trainers_numbers(
    sampler: Sampler, tiny_folder: Path
) -> None:
    model = load_llama(tiny_folder)
    lengths = (1, 700, 30, 1300, 31)
    requests = [request(i, prompt_ids=prompt(i, n, shared=())) for i, n in enumerate(lengths)]
    for asked, result in zip(requests, sample(sampler, *requests), strict=True):
        expected = recomputed(model, asked.prompt_ids, result, 1)
        assert result.token_logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_ids": ()}, "no tokens"),
        ({"prompt_ids": (1, 10**6)}, "token ids"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5000}, "context is 2048"),
        ({"temperature": -1.0}, "temperature"),
        ({"stop": ("",)}, "stop"),
        ({"model": "other"}, "not served"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    sampler: Sampler, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(RequestRefused, match=message):
        sampler.submit(request(**changes))


def test_a_full_queue_refuses_all_or_none(tiny_folder: Path) -> None:
    sampler = Sampler(tiny_folder, name="tiny", limits=Limits(max_rows=1, max_waiting=2))
    try:
        with pytest.raises(SamplerBusy, match="max-waiting"):
            sampler.submit(request(1), request(2), request(3))
        assert len(sample(sampler, request(1), request(2))) == 2
    finally:
        sampler.close()


def test_a_cancelled_row_makes_room_and_a_late_one_fails(tiny_folder: Path) -> None:
    sampler = Sampler(tiny_folder, name="tiny", limits=Limits(max_rows=1))
    try:
        # The model's greedy continuation of "b" is a loop without an end of turn.
        endless = tuple(sampler.tokenizer.encode("b"))
        long = request(prompt_ids=endless, max_tokens=1900, temperature=0.0)
        running, waiting, late = sampler.submit(long, long, replace(long, deadline_s=0.01))
        assert running.cancel()
        assert waiting.cancel()
        with pytest.raises(DeadlineExceeded):
            late.result(10)
        assert sample(sampler, request(2))[0].token_ids
    finally:
        sampler.close()


def test_many_ragged_rows_within_a_small_cache_all_finish(tiny_folder: Path) -> None:
    limits = Limits(max_rows=8, kv_tokens=1024, sequence_bytes=40_000, prefix_bytes=40_000)
    sampler = Sampler(tiny_folder, name="tiny", limits=limits)
    try:
        requests = [request(i % 7, seed=i, max_tokens=1 + i % 23) for i in range(60)]
        results = sample(sampler, *requests)
        assert all(
            1 <= len(r.token_ids) <= q.max_tokens for q, r in zip(requests, results, strict=True)
        )
        assert sampler.counters.faults == 0
        assert sampler._store.size_bytes <= 120_000
    finally:
        sampler.close()


def test_the_adapter_used_longest_ago_makes_room(
    tiny_folder: Path, make_adapter: Callable[[int], Path]
) -> None:
    """A trainer publishes an adapter per step; a step more than the limit must not end it."""
    sampler = Sampler(tiny_folder, name="tiny", limits=Limits(max_adapters=2))
    try:
        for seed in (1, 2):
            sampler.add_adapter(name=f"a{seed}", path=make_adapter(seed))
        sample(sampler, request(model="a1"))
        sampler.add_adapter(name="a3", path=make_adapter(3))
        assert {adapter.name for adapter in sampler.adapters()} == {"a1", "a3"}
        with pytest.raises(UnknownModel):
            sampler.submit(request(model="a2"))
    finally:
        sampler.close()
