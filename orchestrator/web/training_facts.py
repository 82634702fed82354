"""What of a training's manifest a page says in words; the rest stands in its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and sentences; a manifest of before a field was there says what was true then."""
    if "execution" not in manifest:
        return []
    execution = manifest["execution"]
    sampler = manifest.get("sampler") or {}
    if execution["backend"] == "tinker":
        return [("Trains", _trains(manifest)), ("On", "a Tinker server, which samples as well")]
    return [
        ("Trains", _trains(manifest)),
        ("On", _processes(execution)),
        (
            "Samples on",
            f"vLLM at {sampler['base_url']}, behind the model server"
            if sampler.get("kind") == "vllm"
            else "the model server",
        ),
    ]


def _trains(manifest: Mapping[str, Any]) -> str:
    model, lora = manifest["model"], manifest["lora"]
    name = model.get("name") or "the model"
    if lora is None:
        return f"every weight of {name}"
    begun = ", going on from one" if model.get("initial_adapter") else ""
    return f"an adapter of rank {lora['rank']} on {name}{begun}"


def _processes(execution: Mapping[str, Any]) -> str:
    n, device = execution["processes"], execution["device"]
    if n == 1:
        return f"one process on {device}"
    how = {
        "ddp": "each with all weights",
        "fsdp2": "the weights in shards over them (FSDP2)",
    }[execution.get("shard", "ddp")]
    return f"{n} processes on {device}, {how}"
