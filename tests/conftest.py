from __future__ import annotations

import os

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
