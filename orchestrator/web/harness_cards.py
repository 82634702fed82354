"""A harness's texts as the cards of its page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.harness import CONFIG, DEMONSTRATIONS, INSTRUCTIONS, TOOLS, Demonstration, Harness
from optimizer.skills import Skill, estimated_tokens
from optimizer.tools import parameters_of

DEMONSTRATIONS_SHOWN = 20
STARTERS: Mapping[str, str] = {
    "skills/new-skill/SKILL.md": "---\nname: new-skill\ndescription: What it does, and when to use "
    "it.\n---\nSteps, in the order in which they are taken.\n",
    DEMONSTRATIONS: '{"id": "first", "messages": [{"role": "user", "content": "The task."}, '
    '{"role": "assistant", "content": "The action."}], "source": ""}\n',
    TOOLS: '[\n {\n  "name": "search",\n  "description": "What it does, in words that help to '
    'choose it.",\n  "parameters": {"properties": {"query": {"description": "What to write '
    'here."}}}\n }\n]\n',
}
"""A text to start from, for files that a harness does not have yet."""


@dataclass(frozen=True)
class SkillCard:
    path: str
    skill: Skill
    fields: Sequence[tuple[str, str]]
    """The optional fields of its frontmatter."""
    tokens: int
    files: Sequence[tuple[str, str]]
    """Path and text of what lies beside it."""


@dataclass(frozen=True)
class ToolCard:
    name: str
    description: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class HarnessCards:
    instructions: str
    skills: Sequence[SkillCard]
    demonstrations: Sequence[Demonstration]
    n_demonstrations: int
    picking: str
    """Which of them a task is told, in a sentence."""
    tools: Sequence[ToolCard]
    config: Sequence[tuple[str, str]]
    """Field and value of harness.yaml."""


def cards_of(harness: Harness) -> HarnessCards:
    return HarnessCards(
        instructions=harness.instructions,
        skills=[_skill(skill, harness.files) for skill in harness.skills],
        demonstrations=harness.demonstrations[:DEMONSTRATIONS_SHOWN],
        n_demonstrations=len(harness.demonstrations),
        picking=_picking(harness),
        tools=[
            ToolCard(tool["name"], tool.get("description", ""), parameters_of(tool))
            for tool in harness.tools
        ],
        config=_config(harness),
    )


def starters_for(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Path of a file to add, and the word for it."""
    words = (
        ("skills/new-skill/SKILL.md", "skill"),
        (DEMONSTRATIONS, "demonstrations"),
        (TOOLS, "tool descriptions"),
    )
    return [(path, word) for path, word in words if path not in paths]


def starting_text(path: str) -> str:
    return STARTERS.get(path, "")


def is_removable(path: str) -> bool:
    return path not in (CONFIG, INSTRUCTIONS)


def _skill(skill: Skill, files: Mapping[str, str]) -> SkillCard:
    below = f"skills/{skill.name}/"
    return SkillCard(
        path=f"{below}SKILL.md",
        skill=skill,
        fields=[(name, _said(value)) for name, value in skill.extra.items()],
        tokens=estimated_tokens(skill.told),
        files=[
            (path.removeprefix(below), text)
            for path, text in sorted(files.items())
            if path.startswith(below)
        ],
    )


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {text}" for key, text in value.items())
    return str(value)


def _picking(harness: Harness) -> str:
    if not harness.demonstrations:
        return ""
    if harness.picking.pick == "nearest":
        return f"each task is told the {harness.picking.k} whose task is worded most like its own"
    return "every task is told all of them"


def _config(harness: Harness) -> list[tuple[str, str]]:
    sampling = harness.sampling
    stop = ", ".join(repr(text) for text in sampling.stop)
    found = [
        ("Model", harness.model or "the run’s"),
        ("Temperature", f"{sampling.temperature:g}"),
        ("Tokens of a reply", str(sampling.max_tokens)),
        ("Steps at most", str(harness.limits.max_steps)),
    ]
    if sampling.top_p != 1:
        found.append(("Top-p", f"{sampling.top_p:g}"))
    if stop:
        found.append(("Stops at", stop))
    return found
