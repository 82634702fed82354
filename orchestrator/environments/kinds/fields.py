"""How a kind tells what its author writes: the fields of a source and of a task.

Forms, uploads and their row errors are made from these; so a kind that is added gets them for
nothing. Field names are keys of `EnvironmentVersion.source` or `Task.spec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FieldType = Literal[
    "text", "long_text", "sql", "python", "shell", "integer", "number", "flag", "choice", "json",
    "text_list", "files",
]  # fmt: skip
"""`text_list`: a list of texts, one a line in a form; `files`: a map from path to text."""


@dataclass(frozen=True)
class Field:
    name: str
    label: str
    type: FieldType = "text"
    is_required: bool = False
    help: str = ""
    """A sentence for whoever fills it in."""
    choices: tuple[tuple[str, str], ...] = ()
    """Value and label, for `choice`."""
    default: Any = None
    is_secret: bool = False
    """Holds what solves the task: never shown to agents, on sealed tasks not to viewers either."""
