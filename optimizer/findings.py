"""What a linter says: a code, what was found, and how to put it right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from optimizer.harness import ACTIONS

FIXES: Mapping[str, str] = {
    "protected": "leave this component alone, or take it off the list of protected ones",
    "protected_part": "change the text outside of the protected part",
    "empty": "say what is to be added, or use delete",
    "cut": "send the whole text, without reasoning and with every code fence closed",
    "grader": "say what to do for the task; what is scored is measured anyway",
    "asks": "say what to assume where something is unclear",
    "hidden": "write the text without invisible characters",
    "frontmatter": "leave the frontmatter out; set `description` by its own edit",
    "size": "say it in fewer words, or move details to references/ of a skill",
    "copied": "state the rule in general, without the text of tasks",
    "duplicate": "leave it out: the agent is told this already",
    "repeated": "propose something else",
    "buried": "find more tasks that speak for it, or propose something else",
    "same": "propose something that changes the harness",
    "invalid": "see the message",
    "placeholder": f"keep exactly one {ACTIONS} in the instructions",
    "unknown_tool": "use the name of a tool and parameter that the environment offers",
    "turns": "begin with the task (user), take turns, and end with an action (assistant)",
    "skill": "keep the body short; move details to references/",
    "reference": "name only files that are there, from SKILL.md alone",
    "conflict": "switch on at most one of them",
    "demonstrations": "add demonstrations, or pick all",
    "evals": "write the file as the guides at agentskills.io do",
}


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    code: str
    severity: Severity
    message: str
    component: str = ""

    @property
    def fix(self) -> str:
        """What to do about it; empty for codes of others."""
        return FIXES.get(self.code, "")
