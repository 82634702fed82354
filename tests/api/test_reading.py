"""Serializers that are made once and asked again: nothing of one request is in the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework.exceptions import ValidationError
from rest_framework.fields import empty
from rest_framework.serializers import BaseSerializer, Serializer

import orchestrator.api.urls  # noqa: F401 # all of them
from orchestrator.api.base import read
from orchestrator.api.runs import NewRun


def all_of(kind: type[BaseSerializer[Any]]) -> Iterator[type[BaseSerializer[Any]]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("orchestrator.api"):
            yield each
        yield from all_of(each)


def mutable_defaults(serializer: Any, where: str) -> Iterator[str]:
    for name, field in serializer.fields.items():
        if field.default is not empty and isinstance(field.default, list | dict | set):
            yield f"{where}.{name}"
        inner = getattr(field, "child", field)
        if isinstance(inner, Serializer):
            yield from mutable_defaults(inner, f"{where}.{name}")


def test_no_default_could_be_changed_by_who_is_given_it() -> None:
    kinds = list(all_of(Serializer))
    assert len(kinds) > 50
    assert [name for kind in kinds for name in mutable_defaults(kind(), kind.__name__)] == []


def test_a_body_leaves_nothing_for_the_next() -> None:
    whole = {"environment": "a", "rubric": 1, "model": 2, "label": "mine", "n_tasks": 3}
    assert read(NewRun, whole)["label"] == "mine"
    with pytest.raises(ValidationError) as refused:
        read(NewRun, {"environment": "a", "model": 2})
    assert set(refused.value.detail) == {"rubric"}
    after = read(NewRun, {"environment": "b", "rubric": 1, "model": 2})
    assert (after["environment"], after["label"]) == ("b", "")
    assert "n_tasks" not in after


@pytest.mark.parametrize("body", [None, [], "text", 3])
def test_what_is_no_object_is_told_as_before(body: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        read(NewRun, body)
    made = NewRun(data=body)
    made.is_valid()
    assert refused.value.detail == made.errors
