"""The world of the how-to page is played by the benchmark as it stands there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.optimizer.__main__ import main
from tests.docs.pages import python_blocks


def test_the_world_of_the_page_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = python_blocks("docs/how-to/bring-a-world.md")["my_world.py"]
    (tmp_path / "my_world.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["--world", "my_world:MyWorld", "--worlds", "1", "--engines", "ours"]) == 0
    lines = {line["name"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert lines["optimizer.world.ours"]["budget"] == 300
    assert lines["optimizer.world.ours"]["used"] <= 300
    assert lines["optimizer.world.ours"]["gain"] > 0.1
    assert lines["optimizer.rollouts_over_budget"]["ok"]
