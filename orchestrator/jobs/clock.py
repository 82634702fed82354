"""One clock for leases: the database's on PostgreSQL, the host's on SQLite (one host only).

Hosts' clocks differ; a lease written by one and judged by another would end early or never.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, ExpressionWrapper, Value
from django.db.models.functions import Now
from django.utils import timezone


def instant(offset_s: float = 0.0) -> Any:
    """Now plus `offset_s` seconds, as a value or expression for filters and updates."""
    offset = timedelta(seconds=offset_s)
    if connection.vendor == "postgresql":
        return ExpressionWrapper(Now() + Value(offset), output_field=DateTimeField())
    return Value(timezone.now() + offset, output_field=DateTimeField())


def read_now() -> datetime:
    """The clock's present value, for comparisons in Python."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        row = cursor.fetchone()
    assert isinstance(row[0], datetime)
    return row[0]
