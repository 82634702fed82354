"""The product's settings on a data folder of the test run's own, with cheap password hashing.

Environment variables are set before the import, so that a developer's own data folder is never
touched. Child processes of tests get the product's settings, see `tests.live`.
"""

from __future__ import annotations

import os
import tempfile

# Each process that runs tests has a folder of its own; what it starts gets that, or what it says.
_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if "SWITCHBACK_TEST_DATA" not in os.environ or os.environ.get("SWITCHBACK_TEST_FOR") != _worker:
    os.environ["SWITCHBACK_TEST_DATA"] = tempfile.mkdtemp(prefix="switchback-tests-")
    os.environ["SWITCHBACK_TEST_FOR"] = _worker
os.environ["SWITCHBACK_DATA"] = os.environ["SWITCHBACK_TEST_DATA"]
os.environ.setdefault("SECRET_KEY", "a-key-for-tests-only-0123456789-0123456789-0123456789")
os.environ.setdefault("SWITCHBACK_LOG_LEVEL", "WARNING")
# What a test stops, ends at once; tests of draining say how long.
os.environ.setdefault("SWITCHBACK_DRAIN_S", "0")

from orchestrator.settings import *  # noqa: E402, F403 (after the variables that it reads)

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults"]  # noqa: F405

# A worker that a test starts shares the database of the test process.
if _database := os.environ.get("SWITCHBACK_TEST_DATABASE"):
    DATABASES["default"]["NAME"] = _database  # noqa: F405
