"""Skill folders as agentskills.io specifies them: six frontmatter fields, a name, a short body.

A skill is held in parts (fields and body), so no text edit of the body can reach the frontmatter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.canonical import read_yaml, unix_lines, yaml_text
from optimizer.errors import HarnessInvalid
from optimizer.paragraphs import unmarked

FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
MAX_COMPATIBILITY_CHARS = 500
MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5_000


LINK = re.compile(r"(?<![\w/])(?:\./)?((?:references|scripts|assets)/[\w./-]*\w)")


def estimated_tokens(text: str) -> int:
    """Four characters a token: close for English prose, and no tokenizer is needed."""
    return (len(text) + 3) // 4


@dataclass(frozen=True)
class Skill:
    name: str
    description: str
    body: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The optional frontmatter fields that are present."""

    @property
    def told(self) -> str:
        """The body as the model reads it: without the marks of protected parts."""
        return unmarked(self.body)

    def text(self) -> str:
        """SKILL.md, with the fields in their specified order."""
        values = {"name": self.name, "description": self.description, **self.extra}
        ordered = {key: values[key] for key in FIELDS if key in values}
        return f"---\n{yaml_text(ordered)}---\n{self.body}"


def parse_skill(text: str, folder: str) -> Skill:
    """The skill in a SKILL.md of the folder of that name. Raises HarnessInvalid."""
    where = f"skills/{folder}/SKILL.md"
    lines = unix_lines(text.removeprefix("\ufeff")).split("\n")
    if lines[0].rstrip() != "---" or "---" not in [line.rstrip() for line in lines[1:]]:
        raise HarnessInvalid(f"{where}: must begin with frontmatter between two lines of ---")
    end = next(i for i, line in enumerate(lines) if i > 0 and line.rstrip() == "---")
    try:
        values = read_yaml("\n".join(lines[1:end]))
    except ValueError as error:
        raise HarnessInvalid(f"{where}: frontmatter is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise HarnessInvalid(f"{where}: frontmatter must hold fields: {', '.join(FIELDS)}")
    problems = frontmatter_problems(values, folder)
    if problems:
        raise HarnessInvalid(f"{where}: {'; '.join(problems)}")
    extra = {key: value for key, value in values.items() if key not in ("name", "description")}
    return Skill(values["name"], values["description"], "\n".join(lines[end + 1 :]), extra)


def frontmatter_problems(values: Mapping[str, Any], folder: str) -> list[str]:
    """What the specification forbids, one line each."""
    found = [
        f"{key!r} is unknown; accepts {', '.join(FIELDS)}" for key in values if key not in FIELDS
    ]
    found += [f"{key} is required" for key in ("name", "description") if key not in values]
    name = values.get("name", folder)
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        found.append(
            "name: accepts 1 to 64 lower-case letters, digits and single hyphens between them"
        )
    elif name != folder:
        found.append(f"name: {name!r} must equal the folder name {folder!r}")
    found += _text_problems(values, "description", MAX_DESCRIPTION_CHARS)
    if "compatibility" in values:
        found += _text_problems(values, "compatibility", MAX_COMPATIBILITY_CHARS)
    metadata = values.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(item, str) for pair in metadata.items() for item in pair
    ):
        found.append("metadata: accepts texts under texts")
    found += [
        f"{key}: accepts text"
        for key in ("license", "allowed-tools")
        if key in values and not isinstance(values[key], str)
    ]
    return found


def body_problems(body: str) -> list[str]:
    """Sizes above what the specification advises; findings of the linter, not errors."""
    found = []
    if body.count("\n") + 1 > MAX_BODY_LINES:
        found.append(f"body: {body.count(chr(10)) + 1} lines; advised are {MAX_BODY_LINES}")
    if estimated_tokens(body) > MAX_BODY_TOKENS:
        found.append(f"body: about {estimated_tokens(body)} tokens; advised are {MAX_BODY_TOKENS}")
    return found


def linked_files(text: str) -> list[str]:
    """Files of the skill that a text names, relative to its folder, in order, each once."""
    return list(dict.fromkeys(found[1] for found in LINK.finditer(text)))


def _text_problems(values: Mapping[str, Any], key: str, most: int) -> list[str]:
    value = values.get(key, "x")
    if not isinstance(value, str) or not value.strip() or len(value) > most:
        return [f"{key}: accepts text of 1 to {most:,} characters"]
    return []
