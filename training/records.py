"""Frozen dataclasses to and from JSON, strictly: an unknown or ill-typed field is an error.

A manifest decides what is trained, so a misspelt option must not silently mean its default. Knows
what the records of the trainer use: numbers, strings, booleans, None, enums, tuples, free-form
mappings and nested records.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from training.errors import ConfigurationError

T = TypeVar("T")


def read_record(cls: type[T], values: object, *, where: str) -> T:
    """Build `cls` from a mapping; missing fields take their defaults.

    Raises ConfigurationError that names the field and what is accepted.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{where}: expected an object, got {values!r}")
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type] # a dataclass
    for name in values:
        if name not in known:
            raise ConfigurationError(f"{where}.{name}: unknown; fields are {', '.join(known)}")
    fields = {n: _read(hints[n], value, f"{where}.{n}") for n, value in values.items()}
    for name, field in known.items():
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if name not in fields and not has_default:
            raise ConfigurationError(f"{where}.{name}: missing")
    return cls(**fields)


def write_record(record: Any) -> Any:
    """The JSON form; all fields are written, so that defaults are frozen with the rest."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {
            field.name: write_record(getattr(record, field.name))
            for field in dataclasses.fields(record)
        }
    if isinstance(record, StrEnum):
        return record.value
    if isinstance(record, Mapping):
        return {str(key): write_record(value) for key, value in record.items()}
    if isinstance(record, tuple | list):
        return [write_record(value) for value in record]
    return record


def _read(hint: Any, value: object, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else _read(inner[0], value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigurationError(f"{where}: expected a list, got {value!r}")
        item = typing.get_args(hint)[0]
        return tuple(_read(item, entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{where}: expected an object, got {value!r}")
        return dict(value)
    if dataclasses.is_dataclass(hint):
        return read_record(typing.cast("type[Any]", hint), value, where=where)
    if issubclass(hint, StrEnum):
        if value not in set(hint):
            accepted = ", ".join(member.value for member in hint)
            raise ConfigurationError(f"{where}: {value!r} is not one of {accepted}")
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise ConfigurationError(f"{where}: expected {hint.__name__}, got {value!r}")
    return value
