"""How figures of a search look: gains in points of score, amounts of a budget in their unit."""

from __future__ import annotations

import math

from django import template

from orchestrator.web.templatetags.formats import DASH, MINUS, compact, count, duration, usd

register = template.Library()

UNIT_WORDS = {"usd": "US dollars", "seconds": "time"}


@register.filter
def points(share: object, digits: int = 0) -> str:
    """+4.1 or, with a true minus, −2: percentage points of a share with their sign."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not math.isfinite(share):
        return DASH
    text = f"{abs(100 * share):.{digits}f}"
    if float(text) == 0:
        return f"±{text}"
    return ("+" if share > 0 else MINUS) + text


@register.simple_tag
def interval_points(low: float | None, high: float | None, digits: int = 0) -> str:
    """[1.2, 7.0]; empty when there is none."""
    if low is None or high is None:
        return ""
    return f"[{_plain(low, digits)}, {_plain(high, digits)}]"


def _plain(share: float, digits: int) -> str:
    text = f"{abs(100 * share):.{digits}f}"
    return text if share >= 0 or float(text) == 0 else MINUS + text


@register.filter
def whole(value: float | None) -> int | None:
    return None if value is None else round(value)


@register.filter
def unit_word(unit: str) -> str:
    return UNIT_WORDS.get(unit, unit)


@register.filter
def amount(value: float, unit: str) -> str:
    if unit == "usd":
        return usd(value)
    if unit == "seconds":
        return duration(value)
    return compact(round(value)) if unit == "tokens" else count(round(value))


@register.filter
def price(value: float | None) -> str:
    """Of one rollout: $0.0002, with two digits that say something."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "$0"
    digits = max(2, 1 - math.floor(math.log10(abs(value))))
    return f"${value:.{digits}f}"


@register.filter
def sentence(value: object) -> str:
    """With a capital and a full stop, whoever wrote it."""
    text = str(value).strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…:" else ".")
