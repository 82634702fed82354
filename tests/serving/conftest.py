"""A tiny random model, a sampler on it, adapters for it, and the server as a real process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import save_file

from tests.serving.waiting import wait_until_ready
from training.engine.scheduler import Sampler
from training.llama import Llama, LlamaConfig
from training.prepare import make_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", seed=1)


@pytest.fixture
def sampler(tiny_folder: Path) -> Iterator[Sampler]:
    sampler = Sampler(tiny_folder, name="tiny")
    yield sampler
    sampler.close()


@pytest.fixture(scope="session")
def make_adapter(
    tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Path]:
    """A function from a seed to a PEFT folder with random, clearly visible changes."""

    def make(seed: int, *, rank: int = 4, alpha: float = 8) -> Path:
        folder = tmp_path_factory.mktemp(f"adapter-{seed}")
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        with torch.device("meta"):
            model = Llama(LlamaConfig.from_folder(tiny_folder))
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                a = torch.randn(rank, module.in_features, generator=generator)
                b = torch.randn(module.out_features, rank, generator=generator)
                key = f"base_model.model.{name}"
                tensors[f"{key}.lora_A.weight"] = a / module.in_features**0.5
                tensors[f"{key}.lora_B.weight"] = b * 0.3
        save_file(tensors, folder / "adapter_model.safetensors")
        settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none"}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        return folder

    return make


@pytest.fixture(scope="module")
def server(tiny_folder: Path) -> Iterator[httpx.Client]:
    """A client of a running server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "training.serve", "--model", str(tiny_folder)]
    command += ["--name", "tiny", "--port", str(port), "--max-waiting", "40"]
    with subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_until_ready(client, process, timeout_s=30)
            yield client
        process.send_signal(signal.SIGTERM)
        process.wait(10)
