from __future__ import annotations

from tests.runs.conftest import fault_url, make_model, quick_beats

__all__ = ["fault_url", "make_model", "quick_beats"]
