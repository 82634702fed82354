from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import fault_url, make_model, quick_beats

__all__ = ["data", "fault_url", "make_model", "quick_beats"]


@pytest.fixture(autouse=True)
def data(settings: Any, tmp_path: Path) -> Path:
    """A data folder of the test's own, and one device."""
    settings.DATA_DIR = tmp_path
    settings.TRAINING_DEVICES = ["cpu"]
    return tmp_path
