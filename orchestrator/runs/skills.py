"""Skills while an agent acts: it sees names and descriptions, and loads a body when it decides to.

Pure. A model that calls functions is offered `load_skill(name, file)` beside the environment's
tools; every other writes `load_skill: NAME` as its reply. Where the environment has a tool of that
name, ours gets another, so that a reply means one thing. The harness answers: nothing reaches the
environment and no step of it is used. A rollout may ask `MAX_LOADS` times; what it asks beyond that
is refused like an action that does not fit.

Texts are cut where the log cuts them, so what is kept is what the model saw. `evals/` of a skill
holds its tests and is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.harness import Harness
from optimizer.skills import Skill
from orchestrator.agents.types import Completion, Function, FunctionCall
from orchestrator.environments.actions import Malformed
from orchestrator.environments.kinds.acting import Interface, json_object, unfenced
from orchestrator.events.services import NewEvent
from orchestrator.runs.acting import Said, said_in
from orchestrator.runs.payloads import kept

MAX_LOADS = 8
"""Requests of one rollout, those of unknown names included: with more the agent reads and does not
act."""
LIMIT_TOLD = (
    f"skills were asked for {MAX_LOADS} times in this rollout, which is the limit; "
    "act in the environment now"
)
WORD = "load_skill"
REFERENCES = "references"


@dataclass(frozen=True)
class Asked:
    """What an agent wants to load."""

    name: str
    file: str = ""
    """Below the skill's `references/`; empty for its body."""
    problem: str = ""
    """Why the request cannot be read."""


@dataclass(frozen=True)
class Loaded:
    """A request and what the harness answered."""

    asked: Asked
    is_found: bool
    content: str
    """As the model reads it."""
    text: str
    """The words that asked."""
    completion: Completion | None
    """Of the turn, where this came first in it."""


class Shelf:
    """The skills of one rollout. A harness without skills offers nothing and reads nothing."""

    def __init__(self, harness: Harness, *, taken: Collection[str] = (), calls: bool) -> None:
        """`taken`: names of the environment's tools. `calls`: the model is offered functions."""
        self._skills = {skill.name: skill for skill in harness.skills}
        self._files = harness.files
        self._n_asked = 0
        self._calls = calls
        self.word = _free(WORD, taken)
        self._line = re.compile(rf"[`'\"*]*{self.word}\b[\s:(]*(.*)", re.IGNORECASE)

    @property
    def loading(self) -> str:
        """What the agent is told above the list of skills; empty without skills."""
        if not self._skills:
            return ""
        if self._calls:
            return f"Skills (call {self.word} with a name to read one when it fits):"
        return (
            f"Skills (to read one when it fits, reply with exactly `{self.word}: NAME`; "
            "it is answered with the skill, and is no action):"
        )

    @property
    def functions(self) -> list[Function]:
        """To offer beside the environment's."""
        if not self._skills or not self._calls:
            return []
        properties: dict[str, Any] = {
            "name": {
                "type": "string",
                "enum": list(self._skills),
                "description": "Name of the skill.",
            }
        }
        if any(self._references(name) for name in self._skills):
            properties["file"] = {
                "type": "string",
                "description": "A file that the skill names; leave it out to read the skill.",
            }
        return [
            Function(
                self.word,
                "Read a skill, or a file of it. Nothing happens in the environment.",
                {"type": "object", "properties": properties, "required": ["name"]},
            )
        ]

    def asked_in_call(self, call: FunctionCall) -> Asked | None:
        """None for a call of anything else."""
        if not self._skills or call.name != self.word:
            return None
        return self._asked_in_arguments(call.arguments)

    def asked_in_text(self, reply: str) -> Asked | None:
        """None for a reply that is an action.

        A reply that is the request alone asks for whatever it names; words around it are passed
        over where a line of its own names a skill that exists.
        """
        if not self._skills:
            return None
        lines = [line.strip() for line in unfenced(reply).splitlines() if line.strip()]
        for line in lines:
            if (found := self._line.fullmatch(line)) is None:
                continue
            asked = self._asked_in_words(found[1])
            if len(lines) == 1 or asked.name in self._skills:
                return asked
        return None

    def answer(self, asked: Asked, said: Said) -> Said | Loaded:
        """The skill, or why there is none; from the limit on an action that is refused with it."""
        if self._n_asked >= MAX_LOADS:
            return replace(said, action=Malformed(said.text, LIMIT_TOLD))
        self._n_asked += 1
        content = self._content(asked)
        return Loaded(
            asked=asked,
            is_found=content is not None,
            content=kept(self._refusal(asked) if content is None else content) or "",
            text=said.text,
            completion=said.completion,
        )

    # --- reading a request ----------------------------------------------------------------------

    def _asked_in_arguments(self, text: str) -> Asked:
        arguments = json_object(text.strip() or "{}")
        if isinstance(arguments, Malformed):
            return Asked("", problem=f"arguments of {self.word}: {arguments.reason}")
        name, file = arguments.get("name", ""), arguments.get("file") or ""
        if not isinstance(name, str) or not isinstance(file, str):
            return Asked("", problem=f"arguments of {self.word}: name and file are texts")
        return _asked(name, file)

    def _asked_in_words(self, words: str) -> Asked:
        words = words.strip().removesuffix(")").strip()
        if words.startswith("{"):
            return self._asked_in_arguments(words)
        parts = [re.sub(r"^(name|file)=", "", part) for part in re.split(r"[\s,]+", words)]
        name, *rest = [part.strip("`'\"*.") for part in parts] or [""]
        return _asked(name, rest[0] if rest else "")

    # --- answering ------------------------------------------------------------------------------

    def _content(self, asked: Asked) -> str | None:
        skill = self._skills.get(asked.name)
        if skill is None or asked.problem:
            return None
        if not asked.file:
            return self._body(skill)
        return self._references(asked.name).get(asked.file)

    def _body(self, skill: Skill) -> str:
        body = skill.told.strip() or "(This skill has no text.)"
        if not (files := self._references(skill.name)):
            return body
        names = ", ".join(f"{REFERENCES}/{file}" for file in files)
        if self._calls:
            return f"{body}\n\n(Files of this skill, by {self.word} with name and file: {names})"
        how = f"{self.word}: {skill.name} {REFERENCES}/FILE"
        return f"{body}\n\n(Files of this skill, by the reply `{how}`: {names})"

    def _references(self, name: str) -> dict[str, str]:
        below = f"skills/{name}/{REFERENCES}/"
        return {
            path.removeprefix(below): text
            for path, text in sorted(self._files.items())
            if path.startswith(below)
        }

    def _refusal(self, asked: Asked) -> str:
        names = ", ".join(self._skills)
        if asked.problem:
            return f"({asked.problem}. Skills: {names})"
        if asked.name not in self._skills:
            wrong = f"there is no skill {asked.name!r:.80}" if asked.name else "no skill is named"
            return f"({wrong}. Skills: {names})"
        files = self._references(asked.name)
        known = ", ".join(f"{REFERENCES}/{file}" for file in files) or "none"
        return f"(skill {asked.name} has no file {asked.file!r:.80}. Its files: {known})"


def turn_of(completion: Completion, interface: Interface, shelf: Shelf) -> list[Said | Loaded]:
    """What a reply says, in its order: actions, and requests that the harness has answered."""
    turn = said_in(completion, interface)
    if completion.calls:
        asked = [shelf.asked_in_call(call) for call in completion.calls]
    else:
        asked = [shelf.asked_in_text(completion.text)]
    return [
        said if wanted is None else shelf.answer(wanted, said)
        for said, wanted in zip(turn, asked, strict=True)
    ]


def event_of(loaded: Loaded) -> NewEvent:
    if loaded.is_found:
        return NewEvent("skill.loaded", loaded_payload(loaded))
    return NewEvent("skill.refused", loaded_payload(loaded))


def loaded_payload(loaded: Loaded) -> dict[str, Any]:
    """Like an action's, with what the turn has cost; `content` is what the model read."""
    completion = loaded.completion
    logprobs = completion.logprobs if completion is not None else ()
    return {
        "name": kept(loaded.asked.name),
        "file": kept(loaded.asked.file),
        "text": kept(loaded.text),
        "content": loaded.content,
        "tokens": completion.tokens_out if completion is not None else 0,
        "logprob": sum(logprobs) if logprobs else None,
        "latency_s": round(completion.latency_s, 3) if completion is not None else 0.0,
        "finish_reason": completion.finish_reason if completion is not None else "",
    }


def _asked(name: str, file: str) -> Asked:
    """`name` may carry the file as a path, as people write it."""
    name, _, below = name.strip().removeprefix("skills/").partition("/")
    file = (file or below).strip().removeprefix(f"skills/{name}/").removeprefix("./")
    return Asked(name, "" if file == "SKILL.md" else file.removeprefix(f"{REFERENCES}/"))


def _free(word: str, taken: Collection[str]) -> str:
    """`word`, or with a number what no tool of the environment is called."""
    used = {name.casefold().rstrip(":") for name in taken}
    names: Sequence[str] = (word, *(f"{word}_{n}" for n in range(2, len(used) + 3)))
    return next(name for name in names if name not in used)
