"""What most work is asked for with: an environment, a rubric, a model, a harness."""

from __future__ import annotations

import base64
import binascii
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Union

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.agents.models import ModelEndpoint
from orchestrator.agents.queries import model_of
from orchestrator.api.base import named
from orchestrator.environments import queries as environments
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.grading import queries as rubrics
from orchestrator.harnesses.queries import harness_of
from orchestrator.projects.models import Project
from rubrics.models import RubricVersion

MOST_ID = 10**15 - 1


def id_field(**options: Any) -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=MOST_ID, **options)


def label_field(**options: Any) -> Any:
    """Fields of DRF have an attribute called `label`, which the type checker takes for ours."""
    return serializers.CharField(max_length=120, **options)


class WorkOn(serializers.Serializer[Any]):
    environment = serializers.SlugField(max_length=64, help_text="Slug of the environment.")
    version = serializers.IntegerField(
        min_value=1, max_value=10**9, required=False, help_text="Of it; the newest if left out."
    )
    rubric = id_field(help_text="Its id.")
    rubric_version = serializers.IntegerField(
        min_value=1, max_value=10**9, required=False, help_text="The newest if left out."
    )
    model = id_field(help_text="Its id.")
    harness = id_field(
        required=False, allow_null=True, help_text="Its id; none: one that adds nothing."
    )


@dataclass(frozen=True)
class Parts:
    environment_version: EnvironmentVersion
    rubric_version: RubricVersion
    model: ModelEndpoint
    harness: HarnessVersion | None


def parts_of(project: Project, asked: Mapping[str, Any]) -> Parts:
    """The objects that a request names. Raises ValidationError."""
    harness = None
    if asked.get("harness") is not None:
        pk = asked["harness"]
        harness = named(harness_of(project.pk, pk), "harness", pk=pk)
    model_pk = asked["model"]
    return Parts(
        environment_version(project, asked["environment"], asked.get("version")),
        rubric_version(project, asked["rubric"], asked.get("rubric_version")),
        named(model_of(project.pk, model_pk), "model", pk=model_pk),
        harness,
    )


def harness_or_plain(project: Project, parts: Parts) -> HarnessVersion:
    """Needs a transaction."""
    return parts.harness or store_harness(project_id=project.pk, harness=Harness(), label="plain")


def environment_version(project: Project, slug: str, number: int | None) -> EnvironmentVersion:
    newest = named(environments.version_of(project.pk, slug), "environment", slug=slug)
    if number is None:
        return newest
    return named(
        environments.version_of(project.pk, slug, number), "version", slug=slug, number=number
    )


def rubric_version(project: Project, rubric_id: int, number: int | None) -> RubricVersion:
    newest = named(rubrics.version_of(project.pk, rubric_id), "rubric", rubric_id=rubric_id)
    if number is None:
        return newest
    return named(
        rubrics.version_of(project.pk, rubric_id, number),
        "rubric_version",
        rubric_id=rubric_id,
        number=number,
    )


def bytes_of(text: str, field: str) -> bytes:
    """What a field says in base64. Raises ValidationError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValidationError({field: ["is no base64"]}) from error


def settings_of(kind: type[Any], data: Mapping[str, Any], *, path: str = "settings") -> Any:
    """A dataclass of settings from JSON. Raises ValidationError that names the field.

    Types are checked here, since the dataclass takes what it is given.
    """
    hints = typing.get_type_hints(kind)
    known = {each.name for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in data.items():
        where = f"{path}.{name}"
        if name not in known:
            raise ValidationError({where: [f"is unknown; accepts {', '.join(sorted(known))}"]})
        hint = hints[name]
        if is_dataclass(hint) and isinstance(value, Mapping):
            values[name] = settings_of(typing.cast(type[Any], hint), value, path=where)
        elif not _fits(hint, value):
            raise ValidationError({where: [f"accepts {_in_words(hint)}"]})
        else:
            values[name] = tuple(value) if typing.get_origin(hint) is tuple else value
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ValidationError({path: [str(error)]}) from error


def _fits(hint: Any, value: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(arg, value) for arg in args)
    if origin is tuple:
        return isinstance(value, list) and all(_fits(args[0], item) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_ID
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    return False


def _in_words(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(arg) for arg in args)
    if origin is tuple:
        return f"a list, each {_in_words(args[0])}"
    if hint is type(None):
        return "null"
    return words.get(hint, "an object")
