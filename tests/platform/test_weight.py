"""Django processes stay light: weights and environments live in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings


@pytest.mark.parametrize("module", ["orchestrator.asgi", "orchestrator.celery"])
def test_neither_torch_nor_openenv_is_imported(module: str) -> None:
    code = (
        f"import sys, django; django.setup(); import {module}, orchestrator.urls\n"
        "from django.urls import get_resolver; get_resolver().url_patterns\n"
        "print([m for m in ('torch', 'transformers', 'openenv.core', 'numpy') if m in sys.modules])"
    )
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "orchestrator.settings"}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=settings.BASE_DIR,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "[]"
