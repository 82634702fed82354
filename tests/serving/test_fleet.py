"""Whole models beside the base, loaded under a name like adapters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import httpx
import pytest

from training.engine.adapters import AdapterError
from training.engine.fleet import Fleet
from training.engine.scheduler import (
    AdapterConflict,
    Sampler,
    SamplerBusy,
    SampleRequest,
    SampleResult,
    UnknownModel,
)
from training.prepare import make_tiny

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models of the base's shape and tokenizer."""
    root = tmp_path_factory.mktemp("versions")
    return [make_tiny(root / f"v{seed}", seed=seed) for seed in (2, 3, 4)]


@pytest.fixture
def fleet(tiny_folder: Path) -> Iterator[Fleet]:
    fleet = Fleet(Sampler(tiny_folder, name="tiny"), tiny_folder, max_models=2)
    yield fleet
    fleet.close()


def asked(model: str, **fields: object) -> SampleRequest:
    return SampleRequest(model=model, prompt_ids=(5, 6, 7), max_tokens=6, seed=3, **fields)  # type: ignore[arg-type] # by name


def sampled(source: Fleet | Sampler, model: str) -> tuple[list[int], list[float], str]:
    [future] = source.submit(asked(model))
    result = future.result(timeout=LIMIT_S)
    return result.token_ids, result.token_logprobs, result.weight_version


def test_each_name_samples_from_its_own_weights(
    fleet: Fleet, versions: list[Path], make_adapter: Callable[[int], Path]
) -> None:
    fleet.add_adapter(name="whole", path=versions[0])
    fleet.add_adapter(name="lora", path=make_adapter(1))
    alone = Sampler(versions[0], name="whole")
    try:
        assert sampled(fleet, "whole") == sampled(alone, "whole")
    finally:
        alone.close()
    found = {name: sampled(fleet, name) for name in ("tiny", "lora", "whole")}
    assert len({tuple(logprobs) for _, logprobs, _ in found.values()}) == 3
    assert {name: version for name, (_, _, version) in found.items()} == {n: n for n in found}
    assert {each.name for each in fleet.adapters()} == {"lora", "whole"}
    assert fleet.counters.requests == 4


def test_the_model_used_longest_ago_makes_room(fleet: Fleet, versions: list[Path]) -> None:
    first = fleet.add_adapter(name="a", path=versions[0])
    assert fleet.add_adapter(name="a", path=versions[0]) is first
    fleet.add_adapter(name="b", path=versions[1])
    sampled(fleet, "a")
    fleet.add_adapter(name="c", path=versions[2])
    assert {each.name for each in fleet.adapters()} == {"a", "c"}
    with pytest.raises(UnknownModel, match="'b' is not served"):
        fleet.submit(asked("b"))
    assert fleet.remove_adapter("a")
    assert not fleet.remove_adapter("a")


def test_models_in_use_are_not_thrown_out(
    fleet: Fleet, versions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in zip("ab", versions, strict=False):
        fleet.add_adapter(name=name, path=path)
    held: list[Future[SampleResult]] = []

    def hold(_: Sampler, *requests: SampleRequest) -> list[Future[SampleResult]]:
        held.extend(Future() for _ in requests)
        return held[-len(requests) :]

    with monkeypatch.context() as patched:
        patched.setattr(Sampler, "submit", hold)
        for name in "ab":
            fleet.submit(asked(name))
    with pytest.raises(SamplerBusy, match="in use"):
        fleet.add_adapter(name="c", path=versions[2])
    held[1].cancel()  # the caller of b hung up
    fleet.add_adapter(name="c", path=versions[2])
    assert [each.name for each in fleet.adapters()] == ["a", "c"]


def test_a_folder_that_does_not_fit_is_refused(
    fleet: Fleet, versions: list[Path], make_adapter: Callable[[int], Path], tmp_path: Path
) -> None:
    fleet.add_adapter(name="a", path=versions[0])
    with pytest.raises(AdapterConflict, match="already loaded from"):
        fleet.add_adapter(name="a", path=versions[1])
    with pytest.raises(AdapterConflict, match="already loaded from"):
        fleet.add_adapter(name="a", path=make_adapter(1))
    with pytest.raises(AdapterConflict, match="name of the base"):
        fleet.add_adapter(name="tiny", path=versions[1])
    other = shutil.copytree(versions[1], tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    (other / "tokenizer.json").write_text(json.dumps({**tokenizer, "version": "2.0"}))
    with pytest.raises(AdapterError, match="another tokenizer"):
        fleet.add_adapter(name="b", path=other)
    damaged = shutil.copytree(versions[1], tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(AdapterError, match="cannot read the model 'b'"):
        fleet.add_adapter(name="b", path=damaged)
    assert {each.name for each in fleet.adapters()} == {"a"}


def test_the_server_takes_a_whole_model_where_it_takes_adapters(
    server: httpx.Client, versions: list[Path]
) -> None:
    body = {"name": "version-2", "path": str(versions[0])}
    assert server.post("/v1/adapters", json=body).status_code == 201
    fields = {"prompt": "cat file", "max_tokens": 4, "seed": 1, "return_token_ids": True}
    choices = [
        server.post("/v1/completions", json={"model": model, **fields}).json()["choices"][0]
        for model in ("tiny", "version-2")
    ]
    assert choices[1]["weight_version"] == "version-2"
    assert choices[0]["logprobs"] != choices[1]["logprobs"]
    assert server.delete("/v1/adapters/version-2").status_code == 204
