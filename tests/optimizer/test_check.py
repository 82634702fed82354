from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from optimizer.check import check_file, main

VECTORS = Path(__file__).parents[1] / "vectors" / "certify.json"


def test_all_published_vectors_hold() -> None:
    n, faults = check_file(VECTORS)
    assert faults == []
    assert n == 41


def test_the_command_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "optimizer.check", str(VECTORS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "41 of 41 cases hold\n")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("e_process", 0, "expect", "crossing_pair"), 7),
        (("e_process", 0, "expect", "verdict"), "indecisive"),
        (("e_process", 0, "expect", "e_plus", 3), 4.0547613),
        (("paired", 0, "expect", "bootstrap_seeded", "95", 0), 0.25),
        (("paired", 5, "expect", "mcnemar"), {}),
        (("domain_errors", "lists", 0, 1), 1.0),
        (("alpha_spending", "rows", 1, "fewest_straight_wins"), 13),
        (("planning_numbers", "fewest_straight_wins", "alpha_0.05"), 9),
    ],
)
def test_a_wrong_value_is_found(
    tmp_path: Path, path: tuple[str | int, ...], value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(VECTORS.read_text())
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(data))
    assert main([str(file)]) == 1
    assert "40 of 41" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", '{"e_process": [{}]}'])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert main([str(tmp_path / "absent.json")]) == 2
