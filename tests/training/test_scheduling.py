"""Who gets a device, who waits and why; what a job is estimated to take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import ConfigurationError
from training.estimate import ModelShape, Pace, estimate
from training.manifest import BatchPart, BudgetPart, ExecutionPart, LoraPart, Manifest, ModelPart
from training.scheduling import (
    AGES_AFTER_S,
    Device,
    Plan,
    Quota,
    Running,
    Waiting,
    plan,
)

CPU, GPUS = Device("cpu", 8000.0), (Device("cuda:0", 80_000.0), Device("cuda:1", 80_000.0))
NOW = 1_000_000.0


def job(number: int, project: int = 1, **changes: object) -> Waiting:
    made = Waiting(number, project, 0, NOW - 100 + number, "")
    return replace(made, **changes)  # type: ignore[arg-type] # names of fields


def planned(
    *waiting: Waiting,
    devices: tuple[Device, ...] = (CPU,),
    running: tuple[Running, ...] = (),
    used_s: dict[int, float] | None = None,
    quotas: dict[int, Quota] | None = None,
) -> Plan:
    return plan(
        devices=devices,
        running=running,
        waiting=waiting,
        used_s=used_s or {},
        quotas=quotas or {},
        now_s=NOW,
    )


def test_a_device_has_one_job_and_the_first_submitted_goes_first() -> None:
    found = planned(job(2), job(1))
    assert found.assigned == {1: "cpu"}
    assert found.waits == {2: "Waits for a device: another job goes first."}
    busy = planned(job(1), running=(Running(9, 1, "cpu"),))
    assert busy.waits == {1: "Waits for a device: cpu has job 9."}


def test_priority_goes_first_and_waiting_makes_up_for_it() -> None:
    assert planned(job(1), job(2, priority=1)).assigned == {2: "cpu"}
    old = job(1, submitted_s=NOW - 2 * AGES_AFTER_S - 1)
    assert planned(old, job(2, priority=1)).assigned == {1: "cpu"}


def test_among_equals_the_project_that_has_had_least_goes_first() -> None:
    assert planned(job(1, 1), job(2, 2), used_s={1: 500.0}).assigned == {2: "cpu"}
    # A project does not take both devices while another waits, though it has had nothing yet.
    found = planned(job(1, 1), job(2, 1), job(3, 2), devices=GPUS)
    assert found.assigned == {1: "cuda:0", 3: "cuda:1"}


def test_quotas_pass_a_project_over() -> None:
    quotas = {1: Quota(max_running=1), 2: Quota(device_s_per_day=3600.0)}
    found = planned(
        job(1, 1),
        job(2, 2),
        job(3, 3, submitted_s=NOW),
        devices=GPUS,
        running=(Running(9, 1, "cuda:0"),),
        used_s={2: 3600.0},
        quotas=quotas,
    )
    assert found.assigned == {3: "cuda:1"}
    assert found.waits[1] == "The project holds 1 of its 1 devices."
    assert "60 of its 60 minutes" in found.waits[2]


def test_a_job_that_suits_nothing_says_what_it_needs_and_holds_nobody_up() -> None:
    found = planned(job(1, kind="cuda"), job(2, memory_mb=9000.0), job(3))
    assert found.assigned == {3: "cpu"}
    assert found.waits[1] == "No device of kind cuda; there are: cpu. Ask an operator for one."
    assert "needs about 9,000 MB and the largest device has 8,000 MB" in found.waits[2]


@given(
    st.lists(
        st.builds(
            Waiting,
            st.integers(1, 10**6),
            st.integers(1, 3),
            st.integers(-2, 2),
            st.floats(0, NOW),
            st.sampled_from(["", "cpu", "cuda"]),
        ),
        unique_by=lambda each: each.job,
        max_size=8,
    ),
    st.integers(0, 2),
)
def test_every_job_has_a_device_or_a_reason_and_no_device_two_jobs(
    waiting: list[Waiting], cap: int
) -> None:
    devices = (CPU, *GPUS)
    found = planned(*waiting, devices=devices, quotas={1: Quota(max_running=cap)})
    assert {*found.assigned, *found.waits} == {each.job for each in waiting}
    assert not found.assigned.keys() & found.waits.keys()
    assert len(set(found.assigned.values())) == len(found.assigned)
    projects = [each.project for each in waiting if each.job in found.assigned]
    assert projects.count(1) <= cap


SMOLLM2 = ModelShape(
    layers=30, hidden=576, intermediate=1536, vocabulary=49152, kv_width=192, is_tied=True
)


def a_manifest(budget_tokens: int = 512, device: str = "cpu") -> Manifest:
    return Manifest(
        model=ModelPart(folder="m"),
        lora=LoraPart(rank=16),
        batch=BatchPart(groups_per_step=4, group_size=8, budget_tokens=budget_tokens),
        execution=ExecutionPart(device=device),
        budgets=BudgetPart(steps=10),
    )


def test_memory_is_estimated_near_what_was_measured() -> None:
    assert SMOLLM2.parameters == pytest.approx(134.5e6, rel=0.01)
    assert estimate(a_manifest(), SMOLLM2, Pace()).memory_mb == pytest.approx(1400, rel=0.15)
    assert estimate(a_manifest(1024), SMOLLM2, Pace()).memory_mb == pytest.approx(1900, rel=0.15)


def test_time_is_narrow_where_it_was_measured_and_says_so() -> None:
    blind = estimate(a_manifest(), SMOLLM2, Pace())
    known = Pace(tokens_per_rollout=400.0, update_tokens_per_s=70.0, rollout_s=1.0)
    told = estimate(a_manifest(), SMOLLM2, known)
    assert not blind.is_measured
    assert told.is_measured
    assert told.seconds_high / told.seconds_low < blind.seconds_high / blind.seconds_low
    assert told.seconds_low < 320 * (1.0 + 400 / 70.0) < told.seconds_high
    assert told.sentence.startswith("320 rollouts in 10 steps, ")
    assert told.sentence.endswith("on cpu, from earlier jobs.")
    fast = estimate(a_manifest(device="cuda:0"), SMOLLM2, Pace())
    assert fast.seconds_high < blind.seconds_low


def test_a_folder_without_a_model_is_refused(tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="no model to train there"):
        ModelShape.of_folder(tmp_path)
    assert ModelShape.of_folder(tiny_folder).layers == 2


def test_every_weight_takes_what_it_is_trained_with() -> None:
    adapters, full = a_manifest(), replace(a_manifest(), lora=None)
    more = estimate(full, SMOLLM2, Pace()).memory_mb - estimate(adapters, SMOLLM2, Pace()).memory_mb
    # Gradient and two moments in fp32, less what the adapters took.
    assert more == pytest.approx(12e-6 * SMOLLM2.parameters, rel=0.1)
    shared = replace(
        full, execution=replace(full.execution, backend="torchrun", processes=4, shard="fsdp2")
    )
    saved = estimate(full, SMOLLM2, Pace()).memory_mb - estimate(shared, SMOLLM2, Pace()).memory_mb
    assert saved == pytest.approx(16e-6 * SMOLLM2.body * 3 / 4, rel=0.01)
    assert (
        estimate(full, SMOLLM2, Pace()).seconds_high
        > estimate(adapters, SMOLLM2, Pace()).seconds_high
    )
