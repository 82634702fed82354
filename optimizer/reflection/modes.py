"""Kinds of reflection: what is looked for, and what an answer may change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from optimizer.edits import SKILLS
from optimizer.harness import INSTRUCTIONS, TOOLS, Harness


class Mode(StrEnum):
    """The values are names of proposers, and operators of the edits that come of them."""

    EDITS = "reflection"
    """Atomic edits of instructions, skills and tool descriptions; a rewrite where that is asked."""
    SKILL = "reflection.skill"
    """A skill from what passed rollouts do and failed ones do not, over several tasks."""
    TOOLS = "reflection.tools"
    """Descriptions of tools and of their parameters, from calls that went wrong."""
    TRIGGERS = "reflection.triggers"
    """The description of a skill, so that it is loaded when it helps and only then."""

    @property
    def field(self) -> str:
        """Of the answer: the list of what is proposed."""
        return _FIELDS[self]


_FIELDS = {
    Mode.EDITS: "edits",
    Mode.SKILL: "skills",
    Mode.TOOLS: "descriptions",
    Mode.TRIGGERS: "descriptions",
}


def editable(
    mode: Mode,
    harness: Harness,
    *,
    has_tools: bool = False,
    asked: Sequence[str] = (),
    protected: Iterable[str] = (),
) -> tuple[str, ...]:
    """Components that an answer may change, sorted: those asked for, or all that the mode edits.

    `has_tools`: the agent is offered functions, which the harness may not speak of so far.
    """
    if mode is Mode.SKILL:
        by_mode = {SKILLS}
    elif mode is Mode.TOOLS:
        by_mode = {TOOLS}
    else:
        by_mode = {f"skills/{skill.name}/SKILL.md" for skill in harness.skills}
        if mode is Mode.EDITS:
            by_mode |= {INSTRUCTIONS, SKILLS, *([TOOLS] if harness.tools or has_tools else [])}
    # Only plain edits reach further than their mode, to sampling for instance, where that is asked.
    allowed = by_mode if not asked else set(asked) if mode is Mode.EDITS else by_mode & set(asked)
    return tuple(sorted(allowed - set(protected)))
