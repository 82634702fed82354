"""What is wrong with an edit before it costs a rollout.

Errors keep an edit out of a search; warnings are shown with it. The check against copying compares
runs of eight words with the texts of the held-out tasks, less those that train tasks share: tasks
of one family are worded alike, and that is no leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from optimizer.edits import Edit, Op, apply_edit
from optimizer.errors import EditInvalid
from optimizer.harness import Harness
from optimizer.skills import body_problems, estimated_tokens

GRAM = 8
MIN_ANSWER_CHARS = 12
"""Shorter answers (numbers, yes) occur everywhere by chance."""
MAX_EDIT_TOKENS = 5_000
MAX_PROMPT_TOKENS = 20_000
OPEN_TAG = re.compile(r"<(think|thinking|reasoning)>(?!.*</\1>)", re.DOTALL | re.IGNORECASE)
GRADER = re.compile(
    r"\b(grader|judge|evaluator|rubric|reward model|full (marks|score|credit)|"
    r"(give|assign|award|score) (me|this|it) (a |an )?(\d|full|perfect|high|maximum|top)|"
    r"(perfect|maximum|highest) (score|rating|grade|reward))\b",
    re.IGNORECASE,
)
ASKS = re.compile(
    r"\b(ask|consult|check with|wait for) (the )?(user|human|operator)\b", re.IGNORECASE
)


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    code: str
    severity: Severity
    message: str


@dataclass(frozen=True)
class HeldOut:
    """What must not be in a harness: word runs of the held-out tasks and their answers."""

    grams: frozenset[tuple[str, ...]] = field(default_factory=frozenset)
    answers: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(
        cls, texts: Iterable[str], answers: Iterable[str] = (), train_texts: Iterable[str] = ()
    ) -> HeldOut:
        shared = {gram for text in train_texts for gram in _grams(text)}
        return cls(
            grams=frozenset(gram for text in texts for gram in _grams(text)) - shared,
            answers=frozenset(
                answer.strip() for answer in answers if len(answer.strip()) >= MIN_ANSWER_CHARS
            ),
        )


def lint(
    edit: Edit,
    harness: Harness,
    *,
    held_out: HeldOut | None = None,
    protected: Sequence[str] = (),
) -> list[Finding]:
    """Findings on an edit of `harness`; `protected` are components that may not be touched."""
    found: list[Finding] = []

    def add(code: str, message: str, severity: Severity = Severity.ERROR) -> None:
        found.append(Finding(code, severity, message))

    if edit.component in protected:
        add("protected", f"{edit.component} is protected")
    if edit.op is not Op.DELETE and not edit.content.strip():
        add("empty", "the content is empty")
    if OPEN_TAG.search(edit.content) or edit.content.count("```") % 2:
        add("cut", "a reasoning tag or a code fence is open: the text was cut or not cleaned")
    if GRADER.search(edit.content):
        add("grader", "talks to or about the grader")
    if ASKS.search(edit.content):
        add("asks", "tells the agent to ask a person; nobody answers in a rollout")
    if estimated_tokens(edit.content) > MAX_EDIT_TOKENS:
        add("size", f"about {estimated_tokens(edit.content)} tokens; at most {MAX_EDIT_TOKENS}")
    for message in _copied(edit, held_out or HeldOut()):
        add("copied", message)
    try:
        result = apply_edit(harness, edit)
    except EditInvalid as error:
        add("invalid", str(error))
        return found
    if result.sha256 == harness.sha256:
        add("same", "changes nothing")
    tokens = sum(estimated_tokens(m["content"]) for m in result.messages(""))
    if tokens > MAX_PROMPT_TOKENS:
        add("size", f"the prompt would have about {tokens} tokens; at most {MAX_PROMPT_TOKENS}")
    for skill in result.skills:
        for problem in body_problems(skill.body):
            add("skill", f"skills/{skill.name}: {problem}", Severity.WARNING)
    return found


def accepted(
    edits: Iterable[Edit],
    harness: Harness,
    *,
    held_out: HeldOut | None = None,
    protected: Sequence[str] = (),
) -> tuple[list[Edit], list[tuple[Edit, list[Finding]]]]:
    """The edits without an error, each once, and those rejected with their findings."""
    kept: dict[str, Edit] = {}
    rejected = []
    for edit in edits:
        findings = lint(edit, harness, held_out=held_out, protected=protected)
        if edit.sha256 in kept:
            findings.append(Finding("repeated", Severity.ERROR, "proposed already"))
        if any(finding.severity is Severity.ERROR for finding in findings):
            rejected.append((edit, findings))
        else:
            kept[edit.sha256] = edit
    return list(kept.values()), rejected


def _copied(edit: Edit, held_out: HeldOut) -> list[str]:
    found = []
    for gram in _grams(edit.content):
        if gram in held_out.grams:
            found.append(f"copies a held-out task: … {' '.join(gram)} …")
            break
    answers = sorted(answer for answer in held_out.answers if answer in edit.content)
    if answers:
        found.append(f"contains the answer of a held-out task: {answers[0][:80]!r}")
    return found


def _grams(text: str) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return (tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1))
