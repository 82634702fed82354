"""One look of a rule at its project: what is due, what must stay, what goes now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from orchestrator.keeping.models import RetentionMark, RetentionRule, RetentionRun, What
from orchestrator.keeping.retention import protecting
from orchestrator.keeping.retention.kinds import KINDS

CHUNK = 200
EXAMPLES = 5
Check = Callable[[], None]
"""Called between two chunks; raises to end the look there."""


@dataclass
class Found:
    """What one rule came to."""

    what: str
    days: int
    grace_days: int
    due: int = 0
    """Old enough and not protected: marked ones, and those that a dry run would mark."""
    due_bytes: int = 0
    examples: list[str] = field(default_factory=list)
    protected: dict[str, int] = field(default_factory=dict)
    """Old enough and kept, by the reason; one may count under several."""
    marked: int = 0
    """Marked by this look."""
    removed: int = 0
    removed_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def look(rule: RetentionRule, run: RetentionRun, check: Check = lambda: None) -> Found:
    """Of a dry run only counts. Every chunk is a transaction, so that it may end anywhere."""
    kind, found = KINDS[rule.what], Found(rule.what, rule.days, rule.grace_days)
    old = kind.due(rule, timezone.now() - timedelta(days=rule.days))
    reasons = {
        **kind.protected(rule.project_id),
        **protecting.by_hand(rule.project_id, What(rule.what)),
    }
    due = old
    for reason, keys in reasons.items():
        if count := old.filter(pk__in=keys).count():
            found.protected[reason] = count
        # A null among the keys would make `NOT IN` true of nothing.
        due = due.exclude(pk__in=_solid(keys))
    if not run.is_dry:
        _unmark(rule, due)
    for chunk in _chunks(due):
        check()
        size = kind.size(chunk)
        found.due += len(chunk)
        found.due_bytes += size
        if len(found.examples) < EXAMPLES:
            found.examples += [kind.name(key) for key in chunk[: EXAMPLES - len(found.examples)]]
        if run.is_dry:
            continue
        found.marked += _mark(rule, run, chunk)
        if ready := _ready(rule, chunk):
            bytes_ready = size if len(ready) == len(chunk) else kind.size(ready)
            kind.remove(rule, ready)
            _marks(rule).filter(object_id__in=ready).delete()
            found.removed += len(ready)
            found.removed_bytes += bytes_ready
    return found


def _solid(keys: QuerySet[Any]) -> QuerySet[Any]:
    (name,) = keys.query.values_select or ("pk",)
    return keys.filter(**{f"{name}__isnull": False})


def _chunks(due: QuerySet[Any]) -> Iterator[list[int]]:
    last = 0
    while chunk := list(
        due.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:CHUNK]
    ):
        yield chunk
        last = chunk[-1]


def _marks(rule: RetentionRule) -> QuerySet[RetentionMark]:
    return RetentionMark.objects.filter(
        project_id=rule.project_id, what=rule.what, kept_at__isnull=True
    )


def _mark(rule: RetentionRule, run: RetentionRun, keys: list[int]) -> int:
    known = set(_marks(rule).filter(object_id__in=keys).values_list("object_id", flat=True))
    due_at = timezone.now() + timedelta(days=rule.grace_days)
    new = [
        RetentionMark(
            project_id=rule.project_id, run=run, what=rule.what, object_id=key, due_at=due_at
        )
        for key in keys
        if key not in known
    ]
    RetentionMark.objects.bulk_create(new, ignore_conflicts=True)
    return len(new)


def _ready(rule: RetentionRule, keys: list[int]) -> list[int]:
    """Of which the days of grace are over, and which nobody has kept meanwhile."""
    with transaction.atomic():
        found = _marks(rule).filter(object_id__in=keys, due_at__lte=timezone.now())
        return sorted(found.values_list("object_id", flat=True))


def _unmark(rule: RetentionRule, due: QuerySet[Any]) -> None:
    """Marks of things that are not due any more: the rule has changed, or something rests on it."""
    _marks(rule).exclude(object_id__in=due.values("pk")).delete()
