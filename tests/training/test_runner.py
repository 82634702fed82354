"""The runner as a process: a whole job, kills, refusals, and clear failures."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.builders import make_step
from training.errors import ConfigurationError, RowError
from training.jobs import client
from training.jobs.client import JobState, JobStatus
from training.jobs.folder import Evaluation, JobFolder, Need, write_json
from training.manifest import (
    BudgetPart,
    EvaluationPart,
    ExecutionPart,
    LoraPart,
    Manifest,
    ModelPart,
    OptimiserPart,
)
from training.rows import read_rows, row_to_json
from training.schedule import RateSpec

STEPS = 3
LIMIT_S = 240.0
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def manifest(tiny_folder: Path) -> Manifest:
    return Manifest(
        model=ModelPart(folder=str(tiny_folder)),
        lora=LoraPart(rank=4),
        optimiser=OptimiserPart(rate=RateSpec(base=1e-2)),
        execution=ExecutionPart(threads=1),
        budgets=BudgetPart(steps=STEPS, rows_timeout_s=30.0),
    )


class Supervisor:
    """Answers needs with rows that depend on the step alone, and counts the questions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[int] = []
        self.evaluated: list[int] = []
        self.scores = {0: 0.2, 1: 0.6, 2: 0.4, 3: 0.5}
        self.processes: list[subprocess.Popen[bytes]] = []

    def answer(self) -> None:
        evaluation = client.pending_evaluation(self.folder)
        if evaluation is not None:
            self.evaluated.append(evaluation.step)
            mean = self.scores[evaluation.step]
            pool = [{**row_to_json(row), "logprobs": None} for row in make_step(seed=99)]
            client.write_pool(self.folder, pool)
            client.write_evaluation(self.folder, Evaluation(evaluation.step, mean, 10, 0))
        need = client.pending_need(self.folder)
        if need is None:
            return
        self.asked.append(need.step)
        rows = [
            {
                **row_to_json(row),
                "logprobs": None,
                "weight_version": need.weight_version,
            }
            for row in make_step(seed=need.step)
        ]
        client.write_rows(self.folder, step=need.step, records=rows)

    def run(self, process: subprocess.Popen[bytes], *, answers: bool = True) -> int:
        self.processes.append(process)
        wait_until(lambda: self.tick(process, answers))
        return process.wait()

    def tick(self, process: subprocess.Popen[bytes], answers: bool) -> bool:
        if answers:
            self.answer()
        return process.poll() is not None

    def start(self) -> subprocess.Popen[bytes]:
        process = client.start_runner(self.folder)
        self.processes.append(process)
        return process

    def start_doomed(self, at: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.doubles.killed_runner", "--job", str(self.folder)]
        return subprocess.Popen([*command, "--at", at], cwd=ROOT)

    def steps_reported(self) -> list[int]:
        events, _ = client.read_events(self.folder)
        return [event["step"] for event in events if event["kind"] == "step"]

    def log(self) -> str:
        return (self.folder / "runner.log").read_text(encoding="utf-8")


@pytest.fixture
def supervisors() -> Iterator[Callable[[Path, Manifest], Supervisor]]:
    made: list[Supervisor] = []

    def make(folder: Path, manifest: Manifest) -> Supervisor:
        client.submit(folder, manifest)
        made.append(Supervisor(folder))
        return made[-1]

    yield make
    for supervisor in made:
        for process in supervisor.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


Supervise = Callable[[Path, Manifest], Supervisor]


def wait_until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)  # noqa: TID251 # the loop that polls a condition with a limit


@pytest.fixture(scope="module")
def uninterrupted(
    tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[JobStatus, list[dict[str, object]]]:
    """Final status and events of a job nobody disturbed."""
    folder = tmp_path_factory.mktemp("plain") / "job"
    manifest = Manifest(
        model=ModelPart(folder=str(tiny_folder)),
        lora=LoraPart(rank=4),
        optimiser=OptimiserPart(rate=RateSpec(base=1e-2)),
        execution=ExecutionPart(threads=1),
        budgets=BudgetPart(steps=STEPS, rows_timeout_s=30.0),
    )
    client.submit(folder, manifest)
    supervisor = Supervisor(folder)
    assert supervisor.run(client.start_runner(folder)) == 0, supervisor.log()
    assert supervisor.asked == [1, 2, 3]
    return client.status(folder), client.read_events(folder)[0]


def test_a_job_ends_with_an_adapter_and_one_event_per_step(
    uninterrupted: tuple[JobStatus, list[dict[str, object]]],
) -> None:
    status, events = uninterrupted
    assert status.state is JobState.DONE
    assert status.adapter is not None
    assert status.adapter.name == "v0003"
    assert (status.adapter / "adapter_config.json").exists()
    steps = [event for event in events if event["kind"] == "step"]
    assert [event["step"] for event in steps] == [1, 2, 3]
    names = {"loss", "world_ce_selected_per_token", "n_rl", "n_ce", "grad_norm", "reward_mean"}
    assert names <= steps[0].keys()
    versions = [e["weight_version"] for e in events if e["kind"] == "published"]
    assert versions == ["v0001", "v0002", "v0003"]


def finish(supervisor: Supervisor) -> JobStatus:
    assert supervisor.run(supervisor.start()) == 0, supervisor.log()
    return client.status(supervisor.folder)


@pytest.mark.parametrize(
    "moments",
    [
        ("backward:1", "saving:2"),
        pytest.param(("sampling:1", "rows:1", "step:2", "publishing:2"), marks=pytest.mark.slow),
    ],
    ids=["where it costs most", "in the other phases"],
)
def test_a_job_killed_in_every_phase_ends_bit_for_bit_the_same(
    tmp_path: Path,
    manifest: Manifest,
    supervisors: Supervise,
    uninterrupted: tuple[JobStatus, list[dict[str, object]]],
    moments: tuple[str, ...],
) -> None:
    supervisor = supervisors(tmp_path / "job", manifest)
    for moment in moments:
        code = supervisor.run(supervisor.start_doomed(moment))
        assert code == -signal.SIGKILL, moment
    status = finish(supervisor)
    assert status.adapter_sha256 == uninterrupted[0].adapter_sha256
    assert supervisor.asked == [1, 2, 3]
    assert supervisor.steps_reported() == [1, 2, 3]


@pytest.mark.slow
def test_a_job_killed_at_any_write_ends_bit_for_bit_the_same(
    tmp_path: Path,
    manifest: Manifest,
    supervisors: Supervise,
    uninterrupted: tuple[JobStatus, list[dict[str, object]]],
) -> None:
    for number in range(1, 30, 2):
        supervisor = supervisors(tmp_path / str(number), manifest)
        code = supervisor.run(supervisor.start_doomed(f"fsync:{number}"))
        assert code == -signal.SIGKILL
        status = finish(supervisor)
        assert status.adapter_sha256 == uninterrupted[0].adapter_sha256, number
        assert supervisor.asked == [1, 2, 3]
        assert supervisor.steps_reported() == [1, 2, 3]


def test_the_best_step_on_held_out_tasks_is_the_result_and_stays(
    tmp_path: Path,
    manifest: Manifest,
    supervisors: Supervise,
    uninterrupted: tuple[JobStatus, list[dict[str, object]]],
) -> None:
    evaluated = replace(
        manifest,
        evaluation=EvaluationPart(every_steps=1),
        keeping=replace(manifest.keeping, checkpoints=1),
    )
    supervisor = supervisors(tmp_path / "job", evaluated)
    assert supervisor.run(supervisor.start_doomed("evaluating:2")) == -signal.SIGKILL
    status = finish(supervisor)
    assert supervisor.evaluated == [0, 1, 2, 3]
    assert (status.chosen_step, status.adapter) == (1, supervisor.folder / "publish" / "v0001")
    assert "Step 1: 0.600 on 10 held-out rollouts, 0.200 before training." in status.reason
    kept = sorted(path.name for path in (supervisor.folder / "checkpoints").glob("step-*"))
    assert kept == ["step-000001", "step-000003"]
    # Evaluations change nothing of what is trained.
    last = client.read_events(supervisor.folder)[0]
    versions = {e["weight_version"]: e["sha256"] for e in last if e["kind"] == "published"}
    assert versions["v0003"] == uninterrupted[0].adapter_sha256
    told = [e for e in last if e["kind"] == "evaluated"]
    assert [e["step"] for e in told] == [0, 1, 2, 3]
    # The surprise at a pool that nothing is trained on moves with the weights.
    assert len({e["pool_ce"] for e in told}) == 4
    assert all(e["pool_tokens"] == told[0]["pool_tokens"] > 0 for e in told)


@pytest.mark.slow
def test_a_third_gradient_that_is_not_finite_stops_the_job_and_keeps_the_batch(
    tmp_path: Path, manifest: Manifest, supervisors: Supervise
) -> None:
    supervisor = supervisors(tmp_path / "job", manifest)
    assert supervisor.run(supervisor.start_doomed("nan:1")) == 1
    status = client.status(supervisor.folder)
    assert status.kind == "NumericalError"
    rows = JobFolder(supervisor.folder).rows_file(3)
    assert "not finite in 3 steps in a row" in status.reason
    assert str(rows) in status.reason
    assert read_rows(rows.read_text(encoding="utf-8"))
    events, _ = client.read_events(supervisor.folder)
    steps = [event for event in events if event["kind"] == "step"]
    assert [(e["step"], e["is_skipped"], e["grad_norm"]) for e in steps] == [
        (1, True, None),
        (2, True, None),
    ]


def test_rows_of_older_weights_are_taken_within_the_bound(
    tmp_path: Path, manifest: Manifest
) -> None:
    bounded = replace(manifest, batch=replace(manifest.batch, max_staleness=2))
    job = client.submit(tmp_path / "job", bounded)
    write_json(job.need_file(4), {"step": 4, "weight_version": "v0003", "adapter": None})
    for version in ("v0000", "v0004"):
        records = [{**row_to_json(row), "weight_version": version} for row in make_step()]
        with pytest.raises(RowError, match=f"sampled by '{version}'"):
            client.write_rows(job.path, step=4, records=records)
    records = [{**row_to_json(row), "weight_version": "v0001"} for row in make_step()]
    client.write_rows(job.path, step=4, records=records)
    assert job.rows_file(4).exists()


def test_a_job_runs_under_the_interpreter_that_its_manifest_names(
    tmp_path: Path, manifest: Manifest
) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n', encoding="utf-8")
    other.chmod(0o755)
    own = replace(manifest, execution=replace(manifest.execution, interpreter=str(other)))
    client.submit(tmp_path / "job", own)
    assert client.start_runner(tmp_path / "job").wait(timeout=LIMIT_S) == 0
    assert "-m training.jobs.runner" in (tmp_path / "called").read_text(encoding="utf-8")


def test_a_second_runner_on_the_same_folder_is_refused(
    tmp_path: Path, manifest: Manifest, supervisors: Supervise
) -> None:
    supervisor = supervisors(tmp_path / "job", manifest)
    first = supervisor.start()
    wait_until(lambda: client.pending_need(supervisor.folder) is not None)
    second = supervisor.start()
    assert second.wait(timeout=LIMIT_S) == client.EXIT_BUSY
    assert "another runner" in supervisor.log()
    assert first.poll() is None
    assert client.stop_runner(first) == client.EXIT_STOPPED
    assert client.status(supervisor.folder).state is JobState.STOPPED


def test_the_runner_dies_with_its_parent(
    tmp_path: Path, manifest: Manifest, supervisors: Supervise
) -> None:
    supervisor = supervisors(tmp_path / "job", manifest)
    code = (
        "import sys, time; from pathlib import Path; from training.jobs import client; "
        "client.start_runner(Path(sys.argv[1])); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(supervisor.folder)], cwd=ROOT)
    supervisor.processes.append(parent)
    wait_until(lambda: client.pending_need(supervisor.folder) is not None)
    pid = client.status(supervisor.folder).pid
    assert pid is not None
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_rows_that_never_come_are_a_clear_failure(
    tmp_path: Path, manifest: Manifest, supervisors: Supervise
) -> None:
    impatient = replace(manifest, budgets=BudgetPart(steps=1, rows_timeout_s=0.2))
    supervisor = supervisors(tmp_path / "job", impatient)
    assert supervisor.run(supervisor.start(), answers=False) == 1
    status = client.status(supervisor.folder)
    assert status.state is JobState.FAILED
    assert "no rollouts for step 1 within 0.2 s" in status.reason
    # Starting again is a new attempt, not the old verdict.
    supervisor.answer()
    assert finish(supervisor).state is JobState.DONE


@pytest.mark.slow
def test_a_full_disk_is_a_clear_failure_and_leaves_nothing_half_written(
    tmp_path: Path, manifest: Manifest, supervisors: Supervise
) -> None:
    supervisor = supervisors(tmp_path / "job", manifest)
    # A limit on the size of files stands for the full disk: the same system call fails.
    command = [sys.executable, "-m", "training.jobs.runner", "--job", str(supervisor.folder)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert supervisor.run(process) == 1
    status = client.status(supervisor.folder)
    assert status.state is JobState.FAILED
    assert "cannot write" in status.reason
    assert "what was saved before is intact" in status.reason
    assert list((supervisor.folder / "checkpoints").iterdir()) == []
    assert finish(supervisor).state is JobState.DONE
    assert supervisor.asked == [1, 2, 3]


def test_a_folder_belongs_to_one_manifest(tmp_path: Path, manifest: Manifest) -> None:
    client.submit(tmp_path / "job", manifest)
    client.submit(tmp_path / "job", manifest)
    with pytest.raises(ConfigurationError, match="another manifest"):
        client.submit(tmp_path / "job", replace(manifest, seed=1))


def test_rows_of_another_version_are_not_taken(tmp_path: Path, manifest: Manifest) -> None:
    job = client.submit(tmp_path / "job", manifest)
    write_json(job.need_file(1), {"step": 1, "weight_version": "v0000", "adapter": None})
    stale = [{**row_to_json(row), "weight_version": "v0009"} for row in make_step()]
    with pytest.raises(RowError, match="sampled by 'v0009', asked for 'v0000'"):
        client.write_rows(job.path, step=1, records=stale)
    with pytest.raises(RowError, match="not asked for"):
        client.write_rows(job.path, step=2, records=stale)
    with pytest.raises(RowError, match="no rows"):
        client.write_rows(job.path, step=1, records=[])
    assert client.pending_need(job.path) == Need(step=1, weight_version="v0000", adapter=None)


def test_rows_of_a_step_are_facts(tmp_path: Path, manifest: Manifest) -> None:
    job = client.submit(tmp_path / "job", manifest)
    write_json(job.need_file(1), {"step": 1, "weight_version": "v0000", "adapter": None})
    for seed in (1, 2):
        rows = [row_to_json(row) for row in make_step(seed=seed)]
        client.write_rows(job.path, step=1, records=rows)
    assert client.pending_need(job.path) is None
    stored = read_rows(job.rows_file(1).read_text(encoding="utf-8"))
    assert stored[0].ids == make_step(seed=1)[0].ids


def test_the_supervising_side_imports_neither_torch_nor_django() -> None:
    code = (
        "import sys, training.jobs.client, training.manifest, training.rows; "
        "print([m for m in ('torch', 'django', 'safetensors') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_a_stale_heartbeat_means_dead_and_a_passed_deadline_hung(tmp_path: Path) -> None:
    beat = {"pid": os.getpid(), "step": 2, "phase": "backward", "progress": 7, "at": 1000.0}
    for deadline, now, expected in (
        (1010.0, 1005.0, JobState.RUNNING),
        (1003.0, 1005.0, JobState.HUNG),
        (1003.0, 1100.0, JobState.DEAD),
    ):
        (tmp_path / "heartbeat.json").write_text(json.dumps({**beat, "deadline": deadline}))
        assert client.status(tmp_path, now=now).state is expected
