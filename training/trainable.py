"""What of a model is trained: adapters on a frozen base, or every weight.

Both make the model fit for passes over a tree (`training.tree`). Names are those of the files that
the weights go into: PEFT's for adapters, Hugging Face's for full weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as to_bytes
from torch import nn

from training.errors import CheckpointError
from training.llama import Attention, Llama
from training.lora import LoraSpec, TreeAttention, add_lora, lora_parameters
from training.shards import copy_into, whole

CONFIG_FILE = "config.json"
MODEL_FILE = "model.safetensors"


def make_trainable(model: Llama, lora: LoraSpec | None) -> dict[str, nn.Parameter]:
    """Prepare `model` in place and return what an optimiser may change, in a fixed order.

    `lora` None trains all weights; a tied head and embedding are one parameter. Raises
    ConfigurationError if a target of `lora` names no layer.
    """
    if lora is not None:
        add_lora(model, lora)
        return trained(model, lora)
    layer = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Attention):
                setattr(parent, name, TreeAttention(child, layer))
                layer += 1
    model.requires_grad_(True)
    return trained(model, lora)


def trained(model: Llama, lora: LoraSpec | None) -> dict[str, nn.Parameter]:
    """What an optimiser may change of a model that was made trainable, as it lies now.

    Sharding puts other tensors in the place of those that `make_trainable` gave.
    """
    return dict(model.named_parameters() if lora is None else lora_parameters(model))


def model_files(model: Llama) -> dict[str, bytes]:
    """Weights and configuration of a fully trained model, as Hugging Face lays them out."""
    tensors = {name: whole(p.detach()).cpu().contiguous() for name, p in model.named_parameters()}
    return {
        MODEL_FILE: to_bytes(tensors, metadata={"format": "pt"}),
        CONFIG_FILE: (json.dumps(model.config.to_hf(), indent=2) + "\n").encode(),
    }


def load_weights(model: Llama, folder: Path) -> None:
    """Copy the values of `model_files` into a model of the same shape.

    Raises CheckpointError that names the first tensor that does not fit.
    """
    try:
        tensors = load_bytes((folder / MODEL_FILE).read_bytes())
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: {error}") from error
    parameters = dict(model.named_parameters())
    for name in sorted(parameters.keys() ^ tensors.keys()):
        raise CheckpointError(f"{folder}: weights and model differ in tensor {name}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                raise CheckpointError(f"{folder}: {name} has another shape than the model's")
            copy_into(parameter, tensors[name])
