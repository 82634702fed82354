"""A tiny random model, prepared once per test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.prepare import make_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Llama with a byte-level tokenizer."""
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")
