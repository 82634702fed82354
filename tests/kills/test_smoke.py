"""A few moments of the matrix, so that the harness stays sound; `make kills` runs them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("stack", ["embedded", pytest.param("scale", marks=pytest.mark.stack)])
def test_nothing_is_lost_when_parts_are_killed(stack: str, tmp_path: Path) -> None:
    # The settings of this process are those of tests; the product gets its own.
    ours = ("DJANGO_", "SWITCHBACK_", "STACK", "SECRET_KEY", "DATABASE_URL", "BROKER_URL")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "tests.kills", "--stack", stack, "--moments", "3"),
            *("--only", "kill-worker,kill-web,kill-database,cut", "--out", str(tmp_path)),
            *("--activities", "ingest,rollouts,webhook"),
        ],
        cwd=settings.BASE_DIR,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-4000:]
    lines = (tmp_path / f"kills-{stack}.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[-1])["at_rest"] == []
