"""A tiny random model, made once per session without any download."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.prepare import make_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", seed=1)
