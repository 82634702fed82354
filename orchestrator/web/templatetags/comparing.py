"""Links of the comparison page: the same page with one choice changed."""

from __future__ import annotations

from typing import Any

from django import template

from orchestrator.web.comparing import Options

register = template.Library()


@register.simple_tag
def cmp_link(options: Options, **changes: Any) -> str:
    return options.link(**changes)
