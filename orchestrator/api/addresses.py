"""Parts of addresses: ids, whole numbers that every database can hold; steps of work."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import URLPattern, path, register_converter

from orchestrator.api.steering import Action


class CriterionConverter:
    """Ids of criteria, as `rubrics.codec` takes them."""

    regex = "[a-z0-9][a-z0-9_-]{0,63}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: object) -> str:
        return str(value)


class KeyConverter(CriterionConverter):
    """Keys of tasks."""

    regex = "[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"


class IdConverter:
    regex = "[0-9]{1,15}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: object) -> str:
        return str(value)


register_converter(IdConverter, "id")
register_converter(KeyConverter, "key")


def actions(folder: str, key: str, view: type[Action], *, name: str = "") -> Iterator[URLPattern]:
    """An address for each thing that a piece of work can be asked to do."""
    for action in view.actions:
        yield path(
            f"{folder}/<id:{key}_id>/{action}",
            view.as_view(),
            {"action": action},
            name=f"{name or key}_{action}",
        )
