"""Factorial screening: every rollout tells something about every edit (see `engine`)."""

from __future__ import annotations

from optimizer.engines.factorial.engine import Factorial, FactorialSettings

__all__ = ["Factorial", "FactorialSettings"]
