"""The exceptions of optimizer. An indecisive certificate or an unhelpful edit is a value."""

from __future__ import annotations


class OptimizerError(Exception):
    """Base of everything that optimizer raises."""


class HarnessInvalid(OptimizerError, ValueError):
    """A harness cannot be used as written; names the file, the field and what it accepts."""


class EditInvalid(OptimizerError, ValueError):
    """An edit cannot be applied: a bad form, a missing anchor, or a conflict with another one."""


class SearchInvalid(OptimizerError, ValueError):
    """A search cannot run as configured, or its rows do not belong to it."""


class StatisticsDomain(OptimizerError, ValueError):
    """A number outside the range that a statistic is defined on; never clipped."""


class LedgerMisused(OptimizerError, RuntimeError):
    """A settlement or refund that does not belong to an open reservation."""


class BudgetSpent(OptimizerError, RuntimeError):
    """A server would pass its cap; it has served nothing of what was asked."""
