"""What is wrong with an edit before it costs a rollout.

Errors keep an edit out of a search; warnings are shown with it. Each finding has a code, says what
was found, and how to put it right. The check against copying compares runs of eight words with the
texts of the held-out tasks, less those that train tasks share: tasks of one family are worded
alike, and that is no leak.

Sizes are bounds on what an edit adds: where a seed is above one already, edits may still make it
shorter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from optimizer.canonical import read_json
from optimizer.edits import (
    POOL,
    SKILLS,
    Edit,
    Op,
    apply_edit,
    body_text,
    conflict_groups,
    with_whole_anchor,
)
from optimizer.errors import EditInvalid
from optimizer.findings import Finding as Finding
from optimizer.findings import Severity as Severity
from optimizer.harness import (
    ACTIONS,
    DEMONSTRATIONS,
    INSTRUCTIONS,
    SKILL_FILE,
    Harness,
)
from optimizer.paragraphs import paragraphs, protected_parts
from optimizer.skills import MAX_BODY_TOKENS, body_problems, estimated_tokens, linked_files
from optimizer.tools import TOOLS, split_anchor
from optimizer.wording import faults

GRAM = 8
MIN_ANSWER_CHARS = 12
"""Shorter answers (numbers, yes) occur everywhere by chance."""
MAX_EDIT_TOKENS = 5_000
MAX_PROMPT_TOKENS = 20_000
MAX_TOKENS: Mapping[str, int] = {
    INSTRUCTIONS: 4_000,
    DEMONSTRATIONS: 12_000,
    TOOLS: 8_000,
    "SKILL.md": MAX_BODY_TOKENS,
    "references": 10_000,
}
"""Of a component after the edit; of the body of a skill, and of each reference."""


@dataclass(frozen=True)
class HeldOut:
    """What must not be in a harness: word runs of the held-out tasks and their answers."""

    grams: frozenset[tuple[str, ...]] = field(default_factory=frozenset)
    answers: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(
        cls, texts: Iterable[str], answers: Iterable[str] = (), train_texts: Iterable[str] = ()
    ) -> HeldOut:
        """Of long answers (such as programs) the runs of words count too."""
        shared = {gram for text in train_texts for gram in _grams(text)}
        long = [answer.strip() for answer in answers if len(answer.strip()) >= MIN_ANSWER_CHARS]
        copied = {gram for text in (*texts, *long) for gram in _grams(text)}
        return cls(grams=frozenset(copied - shared), answers=frozenset(map(plain, long)))


@dataclass(frozen=True)
class Graveyard:
    """Buried edits with the support they had; case and space make no other edit."""

    supports: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, buried: Iterable[tuple[Edit, int]]) -> Graveyard:
        supports: dict[tuple[str, ...], int] = {}
        for edit, support in buried:
            key = plain_identity(edit)
            supports[key] = max(support, supports.get(key, support))
        return cls(supports)

    def support_of(self, edit: Edit) -> int | None:
        return self.supports.get(plain_identity(edit))


@dataclass(frozen=True)
class Rules:
    """What a search allows, besides what is always forbidden."""

    held_out: HeldOut = field(default_factory=HeldOut)
    protected: Sequence[str] = ()
    """Components that may not be touched; `instructions.md#TEXT` protects the paragraph alone."""
    buried: Graveyard = field(default_factory=Graveyard)
    offered: Mapping[str, Collection[str]] | None = None
    """Tools of the environment and their parameters; None: not known."""
    has_person: bool = False
    """The environment answers questions to a user."""
    max_tokens: Mapping[str, int] = field(default_factory=lambda: MAX_TOKENS)


def lint(
    edit: Edit,
    harness: Harness,
    *,
    rules: Rules | None = None,
    held_out: HeldOut | None = None,
    protected: Sequence[str] = (),
) -> list[Finding]:
    """Findings on an edit of `harness`. `held_out` and `protected` are short for such rules."""
    rules = rules or Rules(held_out=held_out or HeldOut(), protected=protected)
    return list(_Check(edit, harness, rules).findings())


def accepted(
    edits: Iterable[Edit],
    harness: Harness,
    *,
    rules: Rules | None = None,
    held_out: HeldOut | None = None,
    protected: Sequence[str] = (),
) -> tuple[list[Edit], list[tuple[Edit, list[Finding]]]]:
    """The edits without an error, each once, and those rejected with their findings.

    Accepted edits are anchored by whole paragraphs. What differs from an accepted one in case and
    space alone is a repeat.
    """
    kept: dict[tuple[str, ...], Edit] = {}
    rejected = []
    for proposed in edits:
        edit = with_whole_anchor(harness, proposed)
        findings = lint(edit, harness, rules=rules, held_out=held_out, protected=protected)
        if plain_identity(edit) in kept:
            findings.append(_finding(edit, "repeated", "proposed already"))
        if any(finding.severity is Severity.ERROR for finding in findings):
            rejected.append((proposed, findings))
        else:
            kept[plain_identity(edit)] = edit
    return list(kept.values()), rejected


def conflicts(edits: Sequence[Edit]) -> list[Finding]:
    """One finding for each group of edits that cannot be applied together."""
    return [
        _finding(
            edits[members[0]],
            "conflict",
            "exclude each other: " + ", ".join(edits[i].short for i in members),
        )
        for members in conflict_groups(edits)
        if len(members) > 1
    ]


def plain_identity(edit: Edit) -> tuple[str, ...]:
    """What an edit does, whatever the case and the space of its words."""
    return (str(edit.op), edit.component, plain(edit.anchor), plain(edit.content))


class _Check:
    """One edit of one harness."""

    def __init__(self, edit: Edit, harness: Harness, rules: Rules) -> None:
        self.edit, self.harness, self.rules = edit, harness, rules

    def findings(self) -> Iterator[Finding]:
        for code, message in self._of_the_edit():
            yield _finding(self.edit, code, message)
        try:
            result = apply_edit(self.harness, self.edit)
        except EditInvalid as error:
            yield _finding(self.edit, "invalid", str(error))
            return
        for code, message in self._of_the_result(result):
            yield _finding(self.edit, code, message)
        for skill in result.skills:
            if skill not in self.harness.skills:
                for problem in body_problems(skill.body):
                    message = f"skills/{skill.name}: {problem}"
                    yield Finding("skill", Severity.WARNING, message, self.edit.component)
        for path, name in missing_references(result):
            if (path, name) not in missing_references(self.harness):
                message = f"{path} names {name}, which is not there"
                yield Finding("reference", Severity.WARNING, message, self.edit.component)

    def _of_the_edit(self) -> Iterator[tuple[str, str]]:
        edit = self.edit
        yield from self._protected()
        if edit.op is not Op.DELETE and not edit.content.strip():
            yield "empty", "the content is empty"
        for text in self._texts:
            found = list(faults(text, has_person=self.rules.has_person))
            yield from found
            if found:
                break
        if estimated_tokens(edit.content) > MAX_EDIT_TOKENS:
            tokens = estimated_tokens(edit.content)
            yield "size", f"about {tokens} tokens; at most {MAX_EDIT_TOKENS}"
        yield from (("copied", message) for message in self._copied())
        support = self.rules.buried.support_of(edit)
        if support is not None and edit.support <= support:
            yield (
                "buried",
                f"was buried with {support} tasks behind it and has {edit.support}; it returns "
                "only with more",
            )
        if edit.component == TOOLS and self.rules.offered is not None:
            yield from self._unknown_tool(self.rules.offered)

    def _of_the_result(self, result: Harness) -> Iterator[tuple[str, str]]:
        if result.sha256 == self.harness.sha256:
            yield "same", "changes nothing"
        yield from self._protected_parts(result)
        yield from self._sizes(result)
        if duplicate := self._duplicate():
            yield "duplicate", f"stands there already: {duplicate[:80]!r}"
        if result.instructions.count(ACTIONS) > max(1, self.harness.instructions.count(ACTIONS)):
            yield "placeholder", f"the instructions would have {ACTIONS} more than once"
        for item in result.demonstrations:
            if item not in self.harness.demonstrations and not _takes_turns(item.messages):
                yield "turns", f"demonstration {item.id}: is no whole episode"

    # --- of the edit

    @cached_property
    def _texts(self) -> list[str]:
        """What of the content the model would read as told to it."""
        edit = self.edit
        if edit.component in (DEMONSTRATIONS, POOL):
            # What users and tools say is the world's; the agent's own words teach it to talk.
            return [m["content"] for m in self._messages if m["role"] == "assistant"]
        return self._skill_texts if edit.component == SKILLS else [edit.content]

    @cached_property
    def _contents(self) -> list[str]:
        """All texts in the content, as they read without the escapes of JSON."""
        if self.edit.component in (DEMONSTRATIONS, POOL):
            return [message["content"] for message in self._messages] or [self.edit.content]
        return self._texts

    @cached_property
    def _messages(self) -> list[Mapping[str, str]]:
        """Of the demonstrations that are new; none where the edit cannot be applied."""
        try:
            result = apply_edit(self.harness, self.edit)
        except EditInvalid:
            return []
        new = [d for d in result.demonstrations if d not in self.harness.demonstrations]
        return [message for item in new for message in item.messages]

    @cached_property
    def _skill_texts(self) -> list[str]:
        try:
            record = read_json(self.edit.content)
        except ValueError:
            return []
        values = record.values() if isinstance(record, dict) else ()
        return [value for value in values if isinstance(value, str)]

    def _protected(self) -> Iterator[tuple[str, str]]:
        edit = self.edit
        touched = {edit.component}
        if edit.component == SKILLS and edit.op is Op.DELETE:
            below = f"skills/{edit.anchor}/"
            touched |= {key for key in self.harness.components() if key.startswith(below)}
        for name in self.rules.protected:
            if name in touched:
                yield "protected", f"{name} is protected"

    def _protected_parts(self, result: Harness) -> Iterator[tuple[str, str]]:
        for component in _texts_with_parts(self.harness):
            before = body_text(self.harness, component) or ""
            after = body_text(result, component) or ""
            if protected_parts(before) != protected_parts(after):
                yield "protected_part", f"{component}: changes a part that is marked as protected"
        for name in self.rules.protected:
            component, _, words = name.partition("#")
            if not words or component in self.rules.protected:
                continue
            blocks = paragraphs(body_text(self.harness, component) or "")
            kept = paragraphs(body_text(result, component) or "")
            for block in blocks:
                if words in block and block not in kept:
                    yield "protected_part", f"{component}: changes {block[:80]!r}, protected"

    def _copied(self) -> Iterator[str]:
        held_out = self.rules.held_out
        grams = (gram for text in self._contents for gram in _grams(text))
        if copied := next((gram for gram in grams if gram in held_out.grams), None):
            yield f"copies a held-out task: … {' '.join(copied)} …"
        texts = [plain(text) for text in self._contents]
        answers = sorted(a for a in held_out.answers if any(a in text for text in texts))
        if answers:
            yield f"contains the answer of a held-out task: {answers[0][:80]!r}"

    def _unknown_tool(self, offered: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
        tool, parameter = split_anchor(self.edit.anchor, list(offered))
        if tool not in offered:
            names = ", ".join(sorted(offered)) or "none"
            yield "unknown_tool", f"{tool!r} is not offered; the environment has {names}"
        elif parameter and parameter not in offered[tool]:
            names = ", ".join(sorted(offered[tool])) or "none"
            yield "unknown_tool", f"{tool} has no parameter {parameter!r}; it has {names}"

    # --- of the result

    def _sizes(self, result: Harness) -> Iterator[tuple[str, str]]:
        before, after = component_tokens(self.harness), component_tokens(result)
        for component, tokens in after.items():
            most = self.rules.max_tokens.get(size_class(component))
            if most is not None and most < tokens > before.get(component, 0):
                yield "size", f"{component} would have about {tokens} tokens; at most {most}"
        old, new = prompt_tokens(self.harness), prompt_tokens(result)
        if new > MAX_PROMPT_TOKENS and new > old:
            yield (
                "size",
                f"the prompt would have about {new} tokens; at most {MAX_PROMPT_TOKENS}",
            )

    def _duplicate(self) -> str:
        """The first paragraph that the component has already; empty where all is new."""
        edit = self.edit
        if edit.op not in (Op.APPEND, Op.INSERT):
            return ""
        text = body_text(self.harness, edit.component)
        known = {plain(block) for block in paragraphs(text or "")}
        return next((b for b in paragraphs(edit.content) if plain(b) in known), "")


def missing_references(harness: Harness) -> list[tuple[str, str]]:
    """(file that names it, file that is not there), of all skills."""
    return [
        (f"skills/{skill.name}/SKILL.md", name)
        for skill in harness.skills
        for name in linked_files(skill.body)
        if f"skills/{skill.name}/{name}" not in harness.files
    ]


def component_tokens(harness: Harness) -> dict[str, int]:
    """About how many tokens each component has; of a skill its body."""
    bodies = {f"skills/{skill.name}/SKILL.md": skill.body for skill in harness.skills}
    return {k: estimated_tokens(t) for k, t in (harness.components() | bodies).items()}


def prompt_tokens(harness: Harness) -> int:
    """What every rollout begins with, besides its task."""
    return sum(estimated_tokens(message["content"]) for message in harness.messages(""))


def size_class(component: str) -> str:
    if SKILL_FILE.fullmatch(component):
        return "SKILL.md"
    parts = component.split("/")
    return parts[2] if len(parts) == 4 and parts[0] == "skills" else component


def _texts_with_parts(harness: Harness) -> list[str]:
    return [key for key in harness.components() if body_text(harness, key) is not None]


def _takes_turns(messages: Sequence[Mapping[str, str]]) -> bool:
    """From the task to an action, as chat templates demand it."""
    roles = [message["role"] for message in messages if message["role"] != "system"]
    roles = ["user" if role == "tool" else role for role in roles]
    return bool(roles) and roles == ["user", "assistant"] * (len(roles) // 2)


def _finding(edit: Edit, code: str, message: str) -> Finding:
    return Finding(code, Severity.ERROR, message, edit.component)


def plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _grams(text: str) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return (tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1))
