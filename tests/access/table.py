"""Every address of the product, as its URL table has it, with values for the names in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, URLResolver, reverse

from orchestrator.api import urls as api
from orchestrator.web import urls as web

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
WORDS: Mapping[str, Sequence[str]] = {
    "action": ("pause", "ping", "judge", "cancel"),
    "form": ("html", "json", "csv"),
    "what": ("reset",),
    "of": ("runs",),
    "kept": ("traces",),
    "kind": ("qa",),
    "criterion": ("correct",),
    "task": ("test-0001",),
}
"""For names that stand for no object: the first that fits the address."""


@dataclass(frozen=True)
class Address:
    name: str
    """With its namespace: `web:run`."""
    arguments: tuple[str, ...]
    given: tuple[tuple[str, Any], ...] = ()
    """Arguments that the table itself passes to the view."""

    def url(self, values: Mapping[str, Any]) -> str:
        """`values`: of the arguments that name objects; 1 where none is known."""
        known = {name: values.get(name, 1) for name in self.arguments if name not in WORDS}
        words = [name for name in self.arguments if name in WORDS]
        tried = [dict(known)]
        for name in words:
            tried = [{**each, name: word} for each in tried for word in WORDS[name]]
        for each in tried:
            try:
                return reverse(self.name, kwargs={**each, **dict(self.given)})
            except NoReverseMatch:
                continue
        raise AssertionError(f"{self.name} takes {self.arguments}; tests.access knows no value")


def addresses() -> list[Address]:
    found = [
        *_below("web", web.urlpatterns, ()),
        *_below("api", api.urlpatterns, ()),
    ]
    return sorted(found, key=lambda address: address.name)


def _below(space: str, patterns: Sequence[Any], above: tuple[str, ...]) -> Iterator[Address]:
    for entry in patterns:
        pattern: Any = entry.pattern
        own = tuple(getattr(pattern, "converters", {})) or tuple(pattern.regex.groupindex)
        if isinstance(entry, URLResolver):
            yield from _below(space, entry.url_patterns, above + own)
        else:
            given = tuple((entry.default_args or {}).items())
            yield Address(f"{space}:{entry.name}", above + own, given)
