from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://127.0.0.1:6379/0", {"visibility_timeout": 86_400, "polling_interval": 0.2}),
        ("amqp://guest:guest@127.0.0.1:5672//", {}),
    ],
)
def test_a_broker_gets_the_options_that_it_knows(url: str, options: dict[str, float]) -> None:
    script = "from orchestrator import settings as s; import json; "
    script += "print(json.dumps([s.CELERY_BROKER_URL, s.CELERY_BROKER_TRANSPORT_OPTIONS]))"
    variables = {"STACK": "scale", "DATABASE_URL": "postgresql://u:p@h/n", "BROKER_URL": url}
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=settings.BASE_DIR,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout) == [url, options]
