"""Adapters: the derivative is right, the start is neutral, files round-trip."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import CheckpointError, ConfigurationError
from training.llama import MLP, Llama, LlamaConfig, forward_packed, load_llama
from training.lora import (
    LoraLinear,
    LoraSpec,
    LoraSwiglu,
    adapter_files,
    add_lora,
    load_adapter,
    lora_parameters,
    spec_of_folder,
)
from training.manifest import ALL_LINEAR

SPEC = LoraSpec(rank=3, alpha=6.0, seed=5)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def randomise(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for _, parameter in lora_parameters(model):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)


def hidden_of(model: Llama) -> Tensor:
    ids = torch.arange(9)
    return forward_packed(model, ids[:4], [ids[4:], ids[5:]])


def check_against(
    module: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor], parameters: list[Tensor]
) -> None:
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for function in (module, plain):
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        gradients = torch.autograd.grad(y.pow(2).sum(), [leaf, *parameters])
        results.append([y.detach(), *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_layer_and_its_gradients_equal_the_formula() -> None:
    base = nn.Linear(6, 5, bias=False, dtype=torch.float64).requires_grad_(False)
    layer = LoraLinear(base, SPEC, torch.Generator().manual_seed(0)).double()
    randomise(layer)

    def plain(x: Tensor) -> Tensor:
        return x @ layer.weight.T + 2.0 * (x @ layer.lora_A.T) @ layer.lora_B.T

    check_against(layer, plain, [layer.lora_A, layer.lora_B])


def test_the_lean_block_and_its_gradients_equal_the_formula() -> None:
    config = LlamaConfig(9, 6, 8, 1, 1, 1, 6, 1e-5, 1e4, 32, True, 0)
    block = nn.ModuleDict({"mlp": MLP(config)}).double().requires_grad_(False)
    parameters = add_lora(block, LoraSpec(rank=3, targets=("gate_proj", "up_proj", "down_proj")))
    block.double()
    randomise(block)
    mlp = block["mlp"]
    assert isinstance(mlp, LoraSwiglu)

    def plain(x: Tensor) -> Tensor:
        y: Tensor = mlp.down_proj(F.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        return y

    check_against(mlp, plain, list(parameters))


def test_a_new_adapter_changes_nothing_and_its_seed_decides_its_values(tiny_folder: Path) -> None:
    plain = load_llama(tiny_folder)
    expected = hidden_of(plain)
    first, again, other = (load_llama(tiny_folder) for _ in range(3))
    for model, seed in ((first, 5), (again, 5), (other, 6)):
        add_lora(model, LoraSpec(rank=3, seed=seed))
    torch.testing.assert_close(hidden_of(first).detach(), expected)
    a, b, c = (dict(lora_parameters(model)) for model in (first, again, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)
    assert len(a) == 2 * 2 * len(ALL_LINEAR)


def test_an_adapter_survives_its_folder(tiny_folder: Path, tmp_path: Path) -> None:
    source, target = load_llama(tiny_folder), load_llama(tiny_folder)
    add_lora(source, SPEC)
    randomise(source)
    folder = write(tmp_path / "v0001", adapter_files(source, SPEC, base_model="tiny"))
    spec = spec_of_folder(folder, seed=77)
    add_lora(target, spec)
    load_adapter(target, folder)
    torch.testing.assert_close(hidden_of(target), hidden_of(source), rtol=0, atol=0)


def test_the_file_names_tensors_as_peft_does(tiny_folder: Path, tmp_path: Path) -> None:
    model = load_llama(tiny_folder)
    add_lora(model, SPEC)
    names = [name for name, _ in lora_parameters(model)]
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in names
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in names
    folder = write(tmp_path / "a", adapter_files(model, SPEC, base_model="tiny"))
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 6.0)


def test_an_adapter_of_another_shape_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    model, other = load_llama(tiny_folder), load_llama(tiny_folder)
    add_lora(model, SPEC)
    folder = write(tmp_path / "a", adapter_files(model, SPEC, base_model="tiny"))
    add_lora(other, LoraSpec(rank=4))
    with pytest.raises(CheckpointError, match="the model needs"):
        load_adapter(other, folder)


def test_an_unknown_target_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="router"):
        add_lora(load_llama(tiny_folder), LoraSpec(targets=("q_proj", "router")))


def test_an_adapter_acts_like_its_product_added_to_the_weights(tiny_folder: Path) -> None:
    model, merged = load_llama(tiny_folder), load_llama(tiny_folder)
    add_lora(model, SPEC)
    randomise(model)
    plain = dict(merged.named_modules())
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, LoraLinear):
                target = plain[name]
                assert isinstance(target, nn.Linear)
                target.weight += 2.0 * module.lora_B @ module.lora_A
    torch.testing.assert_close(hidden_of(model), hidden_of(merged), rtol=1e-4, atol=1e-4)


def test_a_damaged_adapter_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    model = load_llama(tiny_folder)
    add_lora(model, SPEC)
    folder = write(tmp_path / "a", {"adapter_model.safetensors": b"not tensors"})
    with pytest.raises(CheckpointError):
        load_adapter(model, folder)
