"""Which column of a table, or key of a line, means which field of a task.

A name fits by itself, by a common other name (`question` for `prompt`), by a field's label, or as
the singular or plural of a field. Letter case, blanks and dashes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.environments.authoring.records import normal
from orchestrator.environments.kinds import Kind
from orchestrator.environments.kinds.fields import Field

COMMON: tuple[Field, ...] = (
    Field("key", "Key", help="A short name; pages and resets use it."),
    Field("split", "Split", "choice", help="train, select or test"),
    Field("family", "Group", help="Pages and samplers put tasks of a group together."),
    Field("difficulty", "Difficulty", "number", help="Higher is harder."),
    Field("prompt", "Prompt", "long_text", is_required=True),
    Field("reset", "Parameters of the reset", "json"),
    Field("limits", "Limits of an episode", "json"),
    Field("seeds", "Seeds", "json"),
    Field("reference", "Reference transcript", "json"),
    Field("spec", "Specification", "json"),
)
"""What every task has, beside the fields of its kind."""
ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("id", "task", "task_id", "task_key", "name", "uid"), "key"),
    **dict.fromkeys(("set", "subset", "partition"), "split"),
    **dict.fromkeys(("group", "category", "topic", "type"), "family"),
    **dict.fromkeys(("level", "hardness"), "difficulty"),
    **dict.fromkeys(("question", "instruction", "request", "query", "input", "problem"), "prompt"),
    **dict.fromkeys(("reset_params", "parameters"), "reset"),
    "seed": "seeds",
    "transcript": "reference",
}


@dataclass(frozen=True)
class Column:
    """What a name means."""

    field: Field
    is_common: bool
    """False: a field of the kind, kept in the task's specification."""


def column_names(kind: Kind) -> dict[str, Column]:
    """Every name that is understood. A field of the kind goes before another name for a common
    one: a kind with a field `query` means that.
    """
    common = {field.name: Column(field, True) for field in COMMON}
    own = [Column(field, False) for field in kind.task_fields if field.name not in common]
    names: dict[str, Column] = {}
    for column in own:
        names[normal(column.field.name)] = column
    names.update(common)
    for column in own:
        names.setdefault(normal(column.field.label), column)
        names.setdefault(_other_number(normal(column.field.name)), column)
    for alias, name in ALIASES.items():
        names.setdefault(alias, common[name])
    return names


def _other_number(name: str) -> str:
    return name.removesuffix("s") if name.endswith("s") else f"{name}s"


def match(
    header: Sequence[str], names: Mapping[str, Column]
) -> tuple[list[Column | None], list[str], str]:
    """The column of each cell of a header, the names not understood, and what is wrong with it."""
    columns: list[Column | None] = [names.get(normal(name)) for name in header]
    unknown = [name.strip() for name, column in zip(header, columns, strict=True) if not column]
    return columns, [name for name in unknown if name], _twice(header, columns)


def _twice(header: Iterable[str], columns: Iterable[Column | None]) -> str:
    seen: dict[str, str] = {}
    for name, column in zip(header, columns, strict=True):
        if column is None:
            continue
        if column.field.name in seen:
            return (
                f"the columns {seen[column.field.name].strip()} and {name.strip()} both mean "
                f"{column.field.name}; rename or remove one"
            )
        seen[column.field.name] = name
    return ""
