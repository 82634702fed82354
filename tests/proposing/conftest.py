from __future__ import annotations

from tests.runs.conftest import make_model

__all__ = ["make_model"]
