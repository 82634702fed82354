"""Values of a row from a foreign file, held against the field they are for. Pure."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

from django.db import models
from django.utils.dateparse import parse_datetime

from orchestrator.keeping.errors import ArchiveInvalid

_LARGEST = 2**63 - 1


def checked(each: models.Field[Any, Any], value: Any) -> Any:
    """As the field stores it. Raises ArchiveInvalid, which the caller gives its place."""
    if isinstance(each, models.JSONField):
        return value
    if value is None:
        if each.null:
            return None
        raise ArchiveInvalid(f"{each.name} is missing.")
    found = _typed(each, value)
    is_left_blank = each.blank and found == ""
    if each.choices and not is_left_blank and found not in dict(each.flatchoices):
        raise ArchiveInvalid(f"{each.name} is {found!r:.60}, which is not known.")
    if each.max_length is not None and len(found) > each.max_length:
        raise ArchiveInvalid(f"{each.name} is longer than {each.max_length:,}.")
    return found


def _typed(each: models.Field[Any, Any], value: Any) -> Any:
    if isinstance(each, models.DateTimeField):
        found = _moment(value)
        if found is not None:
            return found
    elif isinstance(each, models.BinaryField):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            pass
    elif isinstance(each, models.BooleanField):
        if isinstance(value, bool):
            return value
    elif isinstance(each, models.FloatField):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    elif isinstance(each, models.IntegerField) or each.is_relation:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        least = 0 if each.get_internal_type().startswith("Positive") else -_LARGEST
        if is_whole and least <= value <= _LARGEST:
            return value
    elif isinstance(value, str) and "\x00" not in value:
        return value
    raise ArchiveInvalid(f"{each.name} is {value!r:.60}; it is a {_word(each)}.")


def _moment(value: Any) -> Any:
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _word(each: models.Field[Any, Any]) -> str:
    name = each.get_internal_type()
    for part, word in (
        ("DateTime", "time with its zone"),
        ("Binary", "text in base64"),
        ("Boolean", "yes or no"),
        ("Float", "number"),
        ("Integer", "whole number"),
        ("ForeignKey", "place of a row"),
        ("OneToOne", "place of a row"),
    ):
        if part in name:
            return word
    return "text without NUL characters"
