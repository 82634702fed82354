from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# How busy a machine is decides no test, and all machines try the same examples.
settings.register_profile(
    "switchback", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("switchback")

# Playwright's event loop in the test process would make the ORM refuse; the server under test is
# another process and never sees this.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

pytest_plugins = ["tests.machine", "tests.people", "tests.live", "tests.browser"]

LONG = (
    "tests/platform/test_scale.py",
    "tests/platform/test_up.py",
    "tests/training/test_runner.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes first: at the end of a run they would keep one process of two."""

    def place(item: pytest.Item) -> int:
        path = item.nodeid.partition("::")[0]
        return 0 if path in LONG else 1 if path.endswith("_browser.py") else 2

    items.sort(key=place)
