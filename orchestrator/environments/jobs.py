"""Job kinds of environments: those of each part register on import."""

from __future__ import annotations

from orchestrator.environments.conformance import jobs as conformance_jobs
from orchestrator.environments.packages import jobs as packages_jobs

__all__ = ["conformance_jobs", "packages_jobs"]
