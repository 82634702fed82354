"""Job kinds of environments: those of each part register on import."""

from __future__ import annotations

from orchestrator.environments.packages import jobs as packages_jobs

__all__ = ["packages_jobs"]
