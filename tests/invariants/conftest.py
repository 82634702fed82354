from __future__ import annotations

from tests.runs.conftest import fault_url, make_model

__all__ = ["fault_url", "make_model"]
