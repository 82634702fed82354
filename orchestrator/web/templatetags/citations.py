"""Events that a verdict's reason cites, as links."""

from __future__ import annotations

import re
from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from orchestrator.web import text as texts

register = template.Library()
_CITED = re.compile(r"\[E(\d{1,9})\]")


@register.filter
def cited(value: Any) -> SafeString:
    """Text in which each [E16] leads to that event on the same page."""
    safe = texts.visible(str(value))
    return mark_safe(
        _CITED.sub(r'<a class="link mono" href="#e\1">[E\1]</a>', safe)
    )  # escaped by `visible`; the rest is digits
