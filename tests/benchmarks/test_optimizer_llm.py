"""The parts of `optimizer_llm` that need no model."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from benchmarks import optimizer_llm
from benchmarks.optimizer_llm_room import Room, Sealed, spent
from optimizer.models import Search, SearchRun
from orchestrator.environments.models import Split
from orchestrator.events.services import create_stream
from orchestrator.runs.models import Purpose
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run


def test_sealed_scores_are_compared_with_the_seed_harness() -> None:
    sealed = Sealed(1, {1: 0.2, 2: 0.5, 3: None})
    assert sealed.score(None) == 0.2
    assert sealed.gain(2) == pytest.approx(0.3)
    assert sealed.gain(1) == 0.0
    assert sealed.gain(3) is None


def test_workers_find_gepa_and_nothing_else_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "lib/python3.11/site-packages"
    (packages / "gepa").mkdir(parents=True)
    (packages / "numpy").mkdir()
    monkeypatch.setattr(optimizer_llm, "RIVAL_PYTHON", tmp_path / "bin/python")
    monkeypatch.setenv("PYTHONPATH", "before")
    with contextlib.ExitStack() as stack:
        optimizer_llm._put_gepa_on_the_path(stack)
        folder, before = os.environ["PYTHONPATH"].split(os.pathsep)
        assert [path.name for path in Path(folder).iterdir()] == ["gepa"]
        assert before == "before"
    assert os.environ["PYTHONPATH"] == "before"


def test_it_says_how_to_install_gepa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_llm, "RIVAL_PYTHON", tmp_path / "bin/python")
    with contextlib.ExitStack() as stack, pytest.raises(SystemExit, match="bench-rivals"):
        optimizer_llm._put_gepa_on_the_path(stack)


@pytest.mark.django_db
def test_a_search_that_found_nothing_claims_nothing_and_keeps_the_seed() -> None:
    room = Room.made(train=4, select=4, test=2)
    assert room.version.tasks.filter(split=Split.TEST).count() == 2
    claims = room._claims(Search(project=room.project), "gepa")
    assert claims["harness"] == room.seed_harness.pk
    assert claims["claimed_gain"] == 0.0
    assert not claims["claims_improved"]


@pytest.mark.django_db
def test_all_rollouts_of_a_search_are_counted() -> None:
    room = Room.made(train=4, select=4, test=2)
    stream = create_stream(project=room.project, kind="search")
    search = Search.objects.create(
        project=room.project, stream=stream, name="x", seed=1, seed_harness=room.seed_harness
    )
    assert spent(search) == (0, 0)
    spec = RunSpec(
        project=room.project,
        purpose=Purpose.OPTIMISE,
        label="x",
        environment_version=room.version,
        rubric_version=room.rubric,
        model=room.model,
        seed=1,
    )
    plan = [PlannedRollout(room.seed_harness.pk, task) for task in room.version.tasks.all()[:3]]
    run = create_run(spec=spec, plan=plan)
    SearchRun.objects.create(search=search, run=run, phase="screen")
    run.rollouts.update(tokens_in=10, tokens_out=1)
    assert spent(search) == (3, 33)
