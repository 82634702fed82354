"""What forms share: choices of a project's own rows, and texts tied to their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.db.models import QuerySet


def fill_choices(
    form: forms.Form, choices: Mapping[str, tuple[QuerySet[Any], Callable[[Any], str]]]
) -> None:
    """Name of a field -> rows and how one is called."""
    for name, (rows, label) in choices.items():
        field = form.fields[name]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = rows
        field.label_from_instance = label  # type: ignore[method-assign, assignment]


def missing_choices(form: forms.Form, *names: str) -> list[str]:
    """Those of the fields that have nothing to choose from."""
    found = []
    for name in names:
        field = form.fields[name]
        assert isinstance(field, forms.ModelChoiceField)
        if field.queryset is None or not field.queryset.exists():
            found.append(name)
    return found


def describe_fields(form: forms.Form) -> None:
    """Ties help and error to each control for screen readers; the ids are those of
    `web/parts/search_field.html`.
    """
    for name, field in form.fields.items():
        described = [f"id_{name}-help"] if field.help_text else []
        if form.is_bound and name in form.errors:
            field.widget.attrs["aria-invalid"] = "true"
            described.append(f"id_{name}-error")
        if described:
            field.widget.attrs["aria-describedby"] = " ".join(described)
