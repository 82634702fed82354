"""What a text must not say to an agent, whoever wrote it.

Patterns find phrases, not intentions: they are for what proposers are known to write. What they let
through still has to earn its place by measurement, on tasks that no proposer has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OPEN_TAG = re.compile(r"<(think|thinking|reasoning)>(?!.*</\1>)", re.DOTALL | re.IGNORECASE)
GRADER = re.compile(
    r"\b(graders?|(the|this|dear|our|any|an?|llm|ai) judges?|evaluators?|rubrics?|reward model|"
    r"full (marks|score|credit)|"
    r"(give|assign|award|score|grade|rate) (me|this|it|us) (an? |the |as )?"
    r"(\d|full|perfect|high|maximum|top|pass|correct)|"
    r"mark (this|it|me|the answer) (as )?(correct|passed|right)|"
    r"(perfect|maximum|highest) (score|rating|grade|reward)|"
    r"ignore (all |any )?(previous|prior|above) (instructions|criteria))\b",
    re.IGNORECASE,
)
_PERSON = r"(the |a |your )?(user|human|operator|customer|person)"
ASKS = re.compile(
    rf"\b((ask|consult|check with|wait for|clarify with|confirm with|check back with) {_PERSON}\b|"
    rf"(ask|wait) for (a |any |more |further )?(clarification|confirmation|permission|approval)\b|"
    rf"(request|seek|obtain|get) (a |any |more |further )?"
    rf"(clarification|confirmation|permission|approval)\b)",
    re.IGNORECASE,
)
NEGATED = re.compile(
    r"\b(not|never|without|don't|cannot|can't|instead of|rather than|no need to)\s+(\w+\s+){0,2}$",
    re.IGNORECASE,
)
HIDDEN = re.compile(
    "[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Characters without a picture that turn writing round or carry text nobody sees. The joiners that
emoji and some scripts need are not among them.
"""
FRONTMATTER = re.compile(r"\s*---\s*\n\s*(name|description)\s*:", re.IGNORECASE)


def faults(text: str, *, has_person: bool = False) -> Iterator[tuple[str, str]]:
    """(code, message) of each fault. `has_person`: somebody answers in these rollouts."""
    if OPEN_TAG.search(text) or text.count("```") % 2:
        yield "cut", "a reasoning tag or a code fence is open: the text was cut or not cleaned"
    if found := GRADER.search(text):
        yield "grader", f"talks to or about the grader: {found[0]!r}"
    if not has_person and (phrase := asks_a_person(text)):
        yield "asks", f"tells the agent to ask a person; nobody answers in a rollout: {phrase!r}"
    if HIDDEN.search(text):
        yield "hidden", "has characters that nobody sees"
    if FRONTMATTER.match(text):
        yield "frontmatter", "begins with a frontmatter, which is no part of this text"


def asks_a_person(text: str) -> str:
    """The phrase that does; empty where none does, or where it is forbidden to."""
    for found in ASKS.finditer(text):
        if not NEGATED.search(text[: found.start()]):
            return found[0]
    return ""
