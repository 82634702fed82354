"""The full experiment in miniature: real trainer, model server, environment and sandbox."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from orchestrator.reproduction.cells import SIZES, Size, grid
from orchestrator.reproduction.grid import Setting, read_results, run_grid
from training.jobs import client
from training.jobs.folder import JobFolder
from training.prepare import make_tiny

SIZE = Size(
    name="tiny",
    steps=2,
    groups=1,
    samples=2,
    demonstrations=1,
    every=1,
    train=2,
    select=2,
    test=2,
    pool=2,
    learning_rate=1e-3,
)


@pytest.mark.slow
def test_a_grid_goes_on_after_a_kill_and_an_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = Setting(
        out=tmp_path / "out",
        model=make_tiny(tmp_path / "model"),
        examples=Path(settings.BASE_DIR) / "examples",
        size=SIZE,
        threads=1,
    )
    cells = grid([0], [0.0, 0.05])
    first = JobFolder(setting.out / "cells" / cells[0].name)
    heard: list[str] = []

    def interrupt(text: str) -> None:
        heard.append(text)
        if text.startswith("  step 1:"):
            pid = client.status(first.path).pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        if text.startswith("  step 2:"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_grid(setting, cells, interrupt)
    kept = first.rows_file(1).read_bytes()
    assert read_results(setting.out, SIZE) == []

    said: list[str] = []
    seen: list[bytes] = []

    def listen(text: str) -> None:
        said.append(text)
        if first.rows_file(1).exists():
            seen.append(first.rows_file(1).read_bytes())

    lines = run_grid(setting, cells, listen)
    assert set(seen) == {kept}  # nothing was sampled twice
    assert [(line["seed"], line["lambda"]) for line in lines] == [(0, 0.0), (0, 0.05)]
    assert not first.path.exists()
    for line in lines:
        assert [step for step, _ in line["pool_ce"]] == [0, 1, 2]
        assert set(line["test"].values()) <= {0.0, 1.0}
        assert 0 < line["observation_share"] < 1
    # Before the first step the weights are the same, whatever lambda.
    assert lines[0]["pool_ce"][0] == lines[1]["pool_ce"][0]
    assert lines[0]["pool_ce"][2] != lines[1]["pool_ce"][2]

    again: list[str] = []
    assert run_grid(setting, cells, again.append) == lines
    assert again == []
    _report(setting.out, capsys, lines)


def _report(out: Path, capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "small", SIZE)
        capsys.readouterr()
        call_command("reproduce", "echo", full=True, size="small", report=True, out=out)
    told = capsys.readouterr().out
    assert "GRPO alone" in told
    assert (out / "echo-surprise.svg").exists()
    assert len((out / "results.jsonl").read_text().splitlines()) == len(lines)
    assert json.loads((out / "base.json").read_text())["size"] == SIZE.fingerprint()
