from __future__ import annotations

import json
from pathlib import Path

import pytest

from optimizer.check import check_file, main
from tests.optimizer.vectors_by_numpy import file_of


@pytest.mark.parametrize("seed", range(3))
def test_files_that_another_implementation_made_hold(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "unseen.json"
    file.write_text(json.dumps(file_of(seed)))
    n, faults = check_file(file)
    assert faults == []
    assert n == 33


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf"])
def test_numbers_that_json_cannot_write_are_refused(tmp_path: Path, word: str) -> None:
    file = tmp_path / "words.json"
    file.write_text(json.dumps({"domain_errors": {"lists": [[0.1, word]]}}))
    assert main([str(file)]) == 0
