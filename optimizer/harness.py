"""The harness: everything around a model that can change without touching weights, as a folder.

    harness.yaml              model, sampling, limits, which demonstrations are told
    instructions.md           the system prompt
    demonstrations.jsonl      {"id", "messages": [{"role", "content"}], "source"} per line
    skills/<name>/SKILL.md    and references/, scripts/, assets/, evals/ beside it
    tools.json                descriptions of tools and of their parameters

A harness is a value. Its components are texts under file paths in one canonical form, so equal
harnesses have equal texts, and its address is the SHA-256 of the map from path to the SHA-256 of
the text. What is read is checked completely; unknown files and fields are refused, because a typing
error that means "default" would be optimised around for hours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import cached_property
from pathlib import Path
from typing import Any

from optimizer.archives import MAX_FILE_BYTES as MAX_FILE_BYTES
from optimizer.archives import MAX_FILES as MAX_FILES
from optimizer.archives import texts_of_folder, texts_of_zip, zip_of_texts
from optimizer.canonical import read_json, unix_lines, unstorable
from optimizer.configuration import CONFIG as CONFIG
from optimizer.configuration import Limits as Limits
from optimizer.configuration import Pick as Pick
from optimizer.configuration import Picking as Picking
from optimizer.configuration import Sampling as Sampling
from optimizer.configuration import config_text, parse_config
from optimizer.errors import HarnessInvalid
from optimizer.nearest import nearest
from optimizer.paragraphs import unmarked
from optimizer.skills import Skill, parse_skill
from optimizer.tools import TOOLS as TOOLS
from optimizer.tools import parse_tools, tools_text

INSTRUCTIONS = "instructions.md"
DEMONSTRATIONS = "demonstrations.jsonl"
SKILL_FILE = re.compile(r"skills/([^/]+)/SKILL\.md")
SKILL_EXTRA = re.compile(
    r"skills/([^/]+)/(references/[^/]+|(scripts|assets|evals)/[^/]+(/[^/]+){0,2})"
)
"""References are one level deep: what is told when depends on one file naming another."""
ACTIONS = "{actions}"
"""Stands in the instructions for the description of the environment's actions."""
ROLES = ("system", "user", "assistant", "tool")
LOADING = "Skills (load one by name when it fits):"
"""Stands above the skills where nothing else says how to load one."""

Message = dict[str, str]


@dataclass(frozen=True)
class Demonstration:
    id: str
    messages: tuple[Message, ...]
    """Whole turns, beginning with the task as `user`."""
    source: str = ""
    """Where it came from, for instance the key of a train task."""

    @property
    def task(self) -> str:
        """What it solves: the first thing that the user says."""
        return next((m["content"] for m in self.messages if m["role"] == "user"), "")

    def line(self) -> str:
        record = {"id": self.id, "messages": list(self.messages), "source": self.source}
        return json.dumps(record, ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True)
class Harness:
    instructions: str = ""
    demonstrations: tuple[Demonstration, ...] = ()
    skills: tuple[Skill, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str = ""
    """Reference to a model; empty leaves it to the run."""
    sampling: Sampling = field(default_factory=Sampling)
    limits: Limits = field(default_factory=Limits)
    picking: Picking = field(default_factory=Picking)
    """Which of the demonstrations one task is told."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts beside the SKILL.md files, by path."""

    def components(self) -> dict[str, str]:
        """Path -> canonical text, sorted by path. Parts that are empty have no file."""
        return dict(self._components)

    @cached_property
    def _components(self) -> Mapping[str, str]:
        texts = {
            CONFIG: config_text(config_values(self)),
            INSTRUCTIONS: self.instructions,
            **self.files,
        }
        if self.demonstrations:
            texts[DEMONSTRATIONS] = "".join(f"{item.line()}\n" for item in self.demonstrations)
        if self.tools:
            texts[TOOLS] = tools_text(self.tools)
        texts |= {f"skills/{skill.name}/SKILL.md": skill.text() for skill in self.skills}
        return dict(sorted(texts.items()))

    @cached_property
    def sha256(self) -> str:
        digests = {key: _digest(text) for key, text in self._components.items()}
        return _digest(json.dumps(digests, sort_keys=True, separators=(",", ":")))

    @property
    def short(self) -> str:
        return f"h_{self.sha256[:8]}"

    def messages(
        self,
        task: str,
        *,
        actions: str = "",
        loading: str = LOADING,
        prompt: str | None = None,
        key: str = "",
    ) -> list[Message]:
        """What the model is told first: system, demonstrations as turns, then the task.

        Skills are disclosed by name and description; a body is loaded when the agent asks for it,
        and `loading` says how. `actions` says how to write an action; it stands where the
        instructions have `{actions}`, else after them. `prompt` and `key` are the task's own, for
        the choice of demonstrations; `task` may say more.
        """
        instructions = unmarked(self.instructions).strip()
        if ACTIONS in instructions:
            instructions, actions = instructions.replace(ACTIONS, actions).strip(), ""
        catalogue = self._catalogue(loading)
        system = "\n\n".join(part for part in (instructions, actions, catalogue) if part)
        told = [{"role": "system", "content": system}] if system else []
        for demonstration in self.demonstrations_for(task if prompt is None else prompt, key):
            told += [dict(message) for message in demonstration.messages]
        return [*told, {"role": "user", "content": task}]

    def demonstrations_for(self, prompt: str, key: str = "") -> tuple[Demonstration, ...]:
        """Those that the task with this prompt and key is told, as `picking` says.

        Chosen by wording, a task is never told its own solution.
        """
        if self.picking.pick is not Pick.NEAREST:
            return self.demonstrations
        others = _distinct(d for d in self.demonstrations if not key or d.source != key)
        chosen = nearest(prompt, [item.task for item in others], k=self.picking.k)
        return tuple(others[i] for i in chosen)

    def _catalogue(self, loading: str) -> str:
        if not self.skills:
            return ""
        lines = [f"- {skill.name}: {' '.join(skill.description.split())}" for skill in self.skills]
        return "\n".join([loading, *lines])

    @classmethod
    def from_components(cls, texts: Mapping[str, str]) -> Harness:
        """Inverse of `components`;

        also reads texts that are not canonical. Raises HarnessInvalid.
        """
        if len(texts) > MAX_FILES:
            raise HarnessInvalid(f"{len(texts)} files; a harness has at most {MAX_FILES}")
        skills, files = [], {}
        for path, text in sorted(texts.items()):
            _check_text(path, text)
            if found := SKILL_FILE.fullmatch(path):
                skills.append(parse_skill(text, found[1]))
            elif SKILL_EXTRA.fullmatch(path):
                files[path] = unix_lines(text)
            elif path not in (CONFIG, INSTRUCTIONS, DEMONSTRATIONS, TOOLS):
                raise HarnessInvalid(
                    f"{path}: not part of a harness; accepts {CONFIG}, {INSTRUCTIONS}, "
                    f"{DEMONSTRATIONS}, {TOOLS} and, in skills/<name>/, SKILL.md, references/ (one "
                    "level deep), scripts/, assets/ and evals/"
                )
        for path in files:
            if path.split("/")[1] not in {skill.name for skill in skills}:
                raise HarnessInvalid(f"{path}: the skill has no SKILL.md")
        return cls(
            instructions=unix_lines(texts.get(INSTRUCTIONS, "")),
            demonstrations=parse_demonstrations(texts.get(DEMONSTRATIONS, "")),
            skills=tuple(sorted(skills, key=lambda skill: skill.name)),
            tools=parse_tools(texts.get(TOOLS, "")),
            files=files,
            **parse_config(texts.get(CONFIG, "")),
        )


def _distinct(demonstrations: Iterable[Demonstration]) -> list[Demonstration]:
    """Without those that say what an earlier one says under another id."""
    found: dict[str, Demonstration] = {}
    for item in demonstrations:
        found.setdefault(json.dumps(item.messages), item)
    return list(found.values())


def config_values(harness: Harness) -> dict[str, Any]:
    """The parsed harness.yaml, every field written out; `demonstrations` where it is not default.

    Left out where it says nothing, so that the address of a harness does not depend on which fields
    exist.
    """
    sampling = harness.sampling
    values: dict[str, Any] = {"model": harness.model} if harness.model else {}
    values["sampling"] = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "top_p": sampling.top_p,
    }
    values["limits"] = {"max_steps": harness.limits.max_steps}
    if harness.picking != Picking():
        values["demonstrations"] = {"pick": str(harness.picking.pick), "k": harness.picking.k}
    return values


# --- folders and archives


def load_folder(folder: Path) -> Harness:
    """Raises HarnessInvalid; hidden files are left out."""
    return Harness.from_components(texts_of_folder(folder))


def save_folder(harness: Harness, folder: Path) -> None:
    """Writes every component below `folder`, which must not exist or be empty."""
    if folder.exists() and any(folder.iterdir()):
        raise HarnessInvalid(f"{folder}: is not empty")
    for name, text in harness.components().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def export_zip(harness: Harness) -> bytes:
    """Equal harnesses give equal bytes."""
    return zip_of_texts(harness.components())


def import_zip(data: bytes) -> Harness:
    """Raises HarnessInvalid, also for archives that are no harness's."""
    return Harness.from_components(texts_of_zip(data))


# --- differences


@dataclass(frozen=True)
class ComponentDiff:
    component: str
    change: str
    """added, removed or changed."""
    lines: tuple[str, ...]
    """Unified diff without its two header lines."""


def diff(before: Harness, after: Harness) -> list[ComponentDiff]:
    """The components that differ, sorted by path."""
    old, new = before.components(), after.components()
    found = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if a == b:
            continue
        change = "added" if a is None else "removed" if b is None else "changed"
        lines = unified_diff((a or "").splitlines(), (b or "").splitlines(), lineterm="", n=2)
        found.append(ComponentDiff(key, change, tuple(lines)[2:]))
    return found


# --- parsing


def parse_demonstrations(text: str) -> tuple[Demonstration, ...]:
    """Demonstrations from JSON lines; blank lines are skipped. Raises HarnessInvalid."""
    found: list[Demonstration] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            found.append(parse_demonstration(line, f"{DEMONSTRATIONS} line {number}"))
    ids = [item.id for item in found]
    repeated = sorted({item for item in ids if ids.count(item) > 1})
    if repeated:
        raise HarnessInvalid(f"{DEMONSTRATIONS}: id used twice: {', '.join(repeated)}")
    return tuple(found)


def parse_demonstration(line: str, where: str = "demonstration") -> Demonstration:
    try:
        record = read_json(line)
    except ValueError as error:
        raise HarnessInvalid(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict) or set(record) - {"id", "messages", "source"}:
        raise HarnessInvalid(f"{where}: accepts an object with id, messages and source")
    identifier, source = record.get("id"), record.get("source", "")
    if not isinstance(identifier, str) or not identifier or not isinstance(source, str):
        raise HarnessInvalid(f"{where}: id and source accept text, and id is required")
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise HarnessInvalid(f"{where}: messages accepts a list of at least one message")
    return Demonstration(identifier, tuple(_message(item, where) for item in messages), source)


def _message(item: Any, where: str) -> Message:
    if (
        not isinstance(item, dict)
        or set(item) != {"role", "content"}
        or item["role"] not in ROLES
        or not isinstance(item["content"], str)
    ):
        raise HarnessInvalid(
            f"{where}: a message has a role ({', '.join(ROLES)}) and content, which is text"
        )
    return {"role": item["role"], "content": item["content"]}


def _check_text(path: str, text: str) -> None:
    if problem := unstorable(text):
        raise HarnessInvalid(f"{path}: has {problem}, which cannot be stored")
    if len(text.encode()) > MAX_FILE_BYTES:
        raise HarnessInvalid(f"{path}: above {MAX_FILE_BYTES:,} bytes")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
