"""The decoder computes what transformers computes, and a packed prefix batch what separate rows
compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from training.attention import PrefixLayout, expanded_suffixes, prefix_attention
from training.llama import Llama, LlamaConfig, forward_causal, forward_packed, load_llama


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Llama:
    return load_llama(tiny_folder)


def random_ids(model: Llama, length: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (length,), generator=generator)


def test_logits_equal_those_of_transformers(tiny_folder: Path, model: Llama) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.LlamaForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    ids = random_ids(model, 40, seed=3)
    with torch.inference_mode():
        expected = reference(ids[None]).logits[0]
        got = model.lm_head(forward_causal(model, ids))
    assert torch.allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("prefix", "lengths"),
    [(7, [3, 5, 1]), (0, [4, 2]), (9, []), (5, [0, 6]), (1, [1]), (16, [8] * 6)],
)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_packed_hidden_states_and_gradients_equal_separate_rows(
    model: Llama, prefix: int, lengths: list[int], checkpoint: bool
) -> None:
    prefix_ids = random_ids(model, prefix, seed=5)
    suffixes = [random_ids(model, length, seed=10 + i) for i, length in enumerate(lengths)]
    weight = torch.randn(model.config.hidden_size, generator=torch.Generator().manual_seed(0))

    def gradients(loss: torch.Tensor) -> dict[str, torch.Tensor]:
        model.zero_grad()
        torch.autograd.backward(loss)
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    model.requires_grad_(True)
    try:
        packed = forward_packed(model, prefix_ids, suffixes, checkpoint=checkpoint)
        loss = (packed[:prefix] @ weight).sin().sum() + (packed[prefix:] @ weight).sin().sum()
        from_packed = gradients(loss)
        packed = packed.detach()
        rows = [forward_causal(model, torch.cat([prefix_ids, s])) for s in suffixes if len(s)]
        alone = forward_causal(model, prefix_ids) if prefix else packed[:0].detach()
        pieces = [alone, *(row[prefix:] for row in rows)]
        separate = torch.cat(pieces)
        from_separate = gradients((separate @ weight).sin().sum())
    finally:
        model.requires_grad_(False)
        model.zero_grad()
    assert torch.allclose(packed, separate, atol=1e-5)
    for name, expected in from_separate.items():
        error = (from_packed[name] - expected).norm() / expected.norm().clamp(min=1e-6)
        assert error < 1e-5, name


def test_the_tied_head_is_one_parameter(model: Llama) -> None:
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert "lm_head.weight" not in dict(model.named_parameters())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "qwen2"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("rope_scaling", {"rope_type": "llama3"}),
    ],
)
def test_a_config_that_is_not_computed_is_refused_by_field(
    model: Llama, field: str, value: object
) -> None:
    with pytest.raises(ValueError, match=field):
        LlamaConfig.from_hf({**model.config.to_hf(), field: value})


@pytest.mark.parametrize(("prefix", "lengths"), [(0, [5, 3]), (13, [4, 9, 1, 0]), (40, [33] * 5)])
def test_suffix_attention_equals_the_expanded_form_and_its_gradients(
    prefix: int, lengths: list[int]
) -> None:
    generator = torch.Generator().manual_seed(2)
    count = prefix + sum(lengths)
    layout = PrefixLayout.build(prefix=prefix, suffixes=lengths)

    def draw(heads: int) -> torch.Tensor:
        x = torch.randn(count, heads, 16, generator=generator, dtype=torch.float64)
        return x.requires_grad_()

    q, k, v = draw(6), draw(2), draw(2)
    out = prefix_attention(q, k, v, layout)[prefix:]
    expected = expanded_suffixes(q[prefix:], k[:prefix], v[:prefix], k[prefix:], v[prefix:], layout)
    weight = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    got = torch.autograd.grad((out * weight).sin().sum(), (q, k, v))
    wanted = torch.autograd.grad((expected * weight).sin().sum(), (q, k, v))
    assert torch.allclose(out, expected, atol=1e-12)
    for left, right in zip(got, wanted, strict=True):
        assert torch.allclose(left, right, atol=1e-10)
