from __future__ import annotations

import os

# Playwright's event loop in the test process would make the ORM refuse; the server under test is
# another process and never sees this.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

pytest_plugins = ["tests.machine", "tests.people", "tests.live", "tests.browser"]
