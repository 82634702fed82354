"""What the page of a training says of its manifest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.web.training_facts import facts
from training.manifest import ExecutionPart, Manifest, ModelPart, SamplerPart, TinkerPart

PLAIN = Manifest(model=ModelPart(folder="m", name="smol"))


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            PLAIN,
            ["an adapter of rank 16 on smol", "one process on cpu", "the model server"],
        ),
        (
            replace(
                PLAIN,
                lora=None,
                execution=ExecutionPart(backend="torchrun", processes=4, shard="fsdp2"),
            ),
            [
                "every weight of smol",
                "4 processes on cpu, the weights in shards over them (FSDP2)",
                "the model server",
            ],
        ),
        (
            replace(
                PLAIN,
                execution=ExecutionPart(backend="torchrun", processes=2, device="cuda"),
                sampler=SamplerPart(kind="vllm", base_url="http://gpu:8000"),
            ),
            [
                "an adapter of rank 16 on smol",
                "2 processes on cuda, each with all weights",
                "vLLM at http://gpu:8000, behind the model server",
            ],
        ),
        (
            replace(
                PLAIN,
                execution=ExecutionPart(backend="tinker"),
                tinker=TinkerPart(base_url="http://t:1", model="smol"),
            ),
            ["an adapter of rank 16 on smol", "a Tinker server, which samples as well"],
        ),
    ],
)
def test_a_manifest_in_words(manifest: Manifest, said: list[str]) -> None:
    manifest.validate()
    assert [sentence for _, sentence in facts(manifest.to_json())] == said


def test_a_manifest_of_before_reads_as_it_was_meant() -> None:
    written = PLAIN.to_json()
    del written["sampler"], written["execution"]["shard"]
    written["execution"] |= {"backend": "torchrun", "processes": 2}
    written["model"]["initial_adapter"] = "somewhere"
    assert [sentence for _, sentence in facts(written)] == [
        "an adapter of rank 16 on smol, going on from one",
        "2 processes on cpu, each with all weights",
        "the model server",
    ]
