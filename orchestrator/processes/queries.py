from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet

from orchestrator.processes.beating import database_clock
from orchestrator.processes.models import Process

MISSED_BEATS = 4
"""After so many a process counts as gone."""


def gone_after_s() -> float:
    return max(30.0, MISSED_BEATS * settings.PROCESS_BEAT_S)


def living() -> QuerySet[Process]:
    now, _ = database_clock()
    return Process.objects.filter(seen_at__gte=now - timedelta(seconds=gone_after_s()))


def silent() -> QuerySet[Process]:
    """Those that ended without a word within the last hour."""
    now, _ = database_clock()
    return Process.objects.filter(seen_at__lt=now - timedelta(seconds=gone_after_s()))
