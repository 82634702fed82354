"""A job whose rollouts a vLLM server samples: each step under its own adapter, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.doubles.vllm_server import NAME, VllmDouble, running
from tests.training.test_runner import Supervisor
from training.engine.scheduler import SampleRequest, SampleResult
from training.engine.vllm import VllmSampler
from training.errors import ConfigurationError, MismatchError
from training.jobs import client
from training.jobs.client import JobState
from training.jobs.folder import Need
from training.jobs.sampler_check import check_rows, check_server
from training.jobs.sessions import open_session
from training.manifest import (
    BudgetPart,
    ExecutionPart,
    LoraPart,
    Manifest,
    ModelPart,
    OptimiserPart,
    SamplerPart,
)
from training.prepare import make_tiny
from training.rows import row_to_json
from training.schedule import RateSpec
from training.types import ObjectiveSpec, Row, RowStatus, TokenKind
from training.vllm import VllmServer

LIMIT_S = 120.0


@pytest.fixture
def double(tiny_folder: Path) -> Iterator[VllmDouble]:
    with running(tiny_folder) as started:
        yield started


def job_manifest(folder: Path, url: str, *, limit: float = 0.01, rate: float = 1e-2) -> Manifest:
    return Manifest(
        model=ModelPart(folder=str(folder), name="tiny"),
        lora=LoraPart(rank=4),
        objective=ObjectiveSpec(lambda_env=0.5),
        optimiser=OptimiserPart(rate=RateSpec(base=rate), clip_norm=0.0),
        sampler=SamplerPart(kind="vllm", base_url=url, model=NAME, max_mismatch=limit),
        execution=ExecutionPart(threads=1),
        budgets=BudgetPart(steps=3, rows_timeout_s=120.0),
    )


def rows_of(
    ask: Callable[[tuple[int, ...], int], SampleResult], need: Need
) -> list[dict[str, Any]]:
    """Eight rollouts of one turn and one observation: what the keeper makes of an episode."""
    random = Random(need.step)
    prompt = tuple(random.randrange(200) for _ in range(12))
    records = []
    for attempt in range(8):
        sampled = ask(prompt, attempt)
        words, n = tuple(random.randrange(200) for _ in range(5)), len(sampled.token_ids)
        row = Row(
            rollout=str(attempt),
            group="g",
            reward=float(attempt % 2),
            status=RowStatus.OK,
            ids=(*prompt, *sampled.token_ids, *words),
            kinds=(
                *(TokenKind.CONTEXT,) * len(prompt),
                *(TokenKind.ACTION,) * n,
                *(TokenKind.ENV_OUTPUT,) * len(words),
            ),
            logprobs=(
                *(0.0,) * len(prompt),
                *sampled.sampling_logprobs,
                *(0.0,) * len(words),
            ),
            weight_version=need.weight_version,
        )
        records.append(row_to_json(row))
    return records


class Sampling(Supervisor):
    """Answers with rows that the server samples, as the keeper has agents do."""

    def __init__(self, folder: Path, sampler: VllmSampler, *, forgets_adapters: bool) -> None:
        super().__init__(folder)
        self.sampler = sampler
        self.forgets_adapters = forgets_adapters

    def answer(self) -> None:
        need = client.pending_need(self.folder)
        if need is None:
            return
        self.asked.append(need.step)
        model = "tiny"
        if need.adapter and not self.forgets_adapters:
            model = f"t1-{need.weight_version}"
            self.sampler.add_adapter(name=model, path=Path(need.adapter))

        def ask(prompt: tuple[int, ...], seed: int) -> SampleResult:
            request = SampleRequest(
                model=model, prompt_ids=prompt, max_tokens=8, seed=seed, deadline_s=LIMIT_S
            )
            return self.sampler.submit(request)[0].result(timeout=LIMIT_S)

        client.write_rows(self.folder, step=need.step, records=rows_of(ask, need))


def trained(
    folder: Path, manifest: Manifest, double: VllmDouble, *, forgets_adapters: bool = False
) -> Sampling:
    client.submit(folder, manifest)
    sampler = VllmSampler(
        VllmServer(double.url),
        folder=Path(manifest.model.folder),
        name="tiny",
        remote_name=NAME,
        max_adapters=2,
    )
    supervisor = Sampling(folder, sampler, forgets_adapters=forgets_adapters)
    try:
        supervisor.run(supervisor.start())
    finally:
        sampler.close()
        for process in supervisor.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return supervisor


def test_every_step_is_sampled_by_its_own_weights_with_the_trainers_log_probs(
    tiny_folder: Path, tmp_path: Path, double: VllmDouble
) -> None:
    double.slots = 2
    supervisor = trained(tmp_path / "job", job_manifest(tiny_folder, double.url), double)
    assert client.status(supervisor.folder).state is JobState.DONE, supervisor.log()
    assert double.loaded == ["t1-v0001", "t1-v0002"]
    events = client.read_events(supervisor.folder)[0]
    [checked] = [event for event in events if event["kind"] == "sampler_checked"]
    assert checked["mismatch"] < 1e-4
    steps = [event for event in events if event["kind"] == "step"]
    assert [event["step"] for event in steps] == [1, 2, 3]
    for event in steps:
        assert event["log_ratio_n"] > 0
        assert event["log_ratio_max"] < 1e-3


@pytest.mark.slow
def test_an_adapter_that_is_left_out_is_noticed_before_it_moves_a_weight(
    tiny_folder: Path, tmp_path: Path, double: VllmDouble
) -> None:
    manifest = job_manifest(tiny_folder, double.url, rate=5e-2)
    supervisor = trained(tmp_path / "job", manifest, double, forgets_adapters=True)
    status = client.status(supervisor.folder)
    assert (status.state, status.kind) == (JobState.FAILED, "MismatchError"), supervisor.log()
    assert "leaves the adapter out" in status.reason
    assert supervisor.steps_reported() == [1]


def test_another_base_under_the_right_name_is_refused_before_anything_is_sampled(
    tiny_folder: Path, tmp_path: Path, double: VllmDouble
) -> None:
    manifest = job_manifest(tiny_folder, double.url)
    found = check_server(manifest, open_session(manifest))
    assert found["mismatch"] < 1e-4
    other = replace(
        manifest, model=replace(manifest.model, folder=str(make_tiny(tmp_path, seed=9)))
    )
    with pytest.raises(MismatchError, match="serves other weights"):
        check_server(other, open_session(other))
    unlimited = replace(other, sampler=replace(other.sampler, max_mismatch=0.0))
    assert check_server(unlimited, open_session(unlimited))["mismatch"] > 0.01


def test_a_base_that_is_not_served_is_named(tiny_folder: Path, double: VllmDouble) -> None:
    manifest = job_manifest(tiny_folder, double.url)
    wrong = replace(manifest, sampler=replace(manifest.sampler, model="org/other"))
    with pytest.raises(ConfigurationError, match=f"does not serve 'org/other'; it has {NAME}"):
        check_server(wrong, open_session(wrong))


def test_rows_of_older_weights_and_rows_without_a_limit_are_not_judged() -> None:
    def row(version: str) -> Row:
        ids, kinds = (1, 2), (TokenKind.CONTEXT, TokenKind.ACTION)
        made = Row("r", "g", 1.0, RowStatus.OK, ids, kinds, (0.0, -1.0))
        return replace(made, weight_version=version)

    strict = SamplerPart(max_mismatch=0.1)
    check_rows(strict, [row("v1"), row("v0")], [3.0])
    check_rows(SamplerPart(), [row("v1")], [3.0])
    check_rows(strict, [row("v1")], [0.05, -0.05])
    with pytest.raises(MismatchError, match="sampled as v1"):
        check_rows(strict, [row("v1")], [3.0])
    # A correction for mismatch takes the trainer's own log-probs as the old ones: rows tell it.
    with pytest.raises(MismatchError, match="differ by 2"):
        check_rows(strict, [replace(row("v1"), trainer_logprobs=(0.0, -3.0))], [0.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampler": SamplerPart(kind="sglang")}, "sampler.kind"),
        ({"sampler": SamplerPart(kind="vllm")}, "sampler.base_url"),
        ({"sampler": SamplerPart(max_mismatch=-1.0)}, "max_mismatch"),
        ({"sampler": SamplerPart(max_mismatch=float("nan"))}, "max_mismatch"),
        ({"lora": None}, "not whole models"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    manifest = job_manifest(Path("m"), "http://127.0.0.1:1")
    manifest.validate()
    with pytest.raises(ConfigurationError, match=message):
        replace(manifest, **changes).validate()
