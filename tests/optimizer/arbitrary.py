"""Arbitrary harnesses and arbitrary edits of them, made from a number.

Hypothesis draws the number alone: drawing every part is a hundred times slower, and how slow a
machine is must not decide whether a test passes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from optimizer.canonical import unix_lines
from optimizer.edits import Edit, Op
from optimizer.harness import Demonstration, Harness, Limits, Message, Pick, Picking, Sampling
from optimizer.skills import Skill

seeds = st.integers(0, 2**63)
MARKS = (
    *("---", "name: x", "```", "~~~~", "", "", "  ", "- do this", "# Title", "a: b", "\r", "\x85"),
    *("<!-- protected -->", "<!-- /protected -->", "'", '"', "{actions}", "\u2028", "one two"),
)
"""Lines that look like what breaks formats: fences, rules, fields, odd line ends."""
CHARACTERS = "aAzé:-#'\"{}[]&*!|>%@` \t\n\r\x85\u2028\ufeff\x0b\x1f\U0001f600"
NAMES = ("a", "a-b", "b", "count-lines")
IDS = ("d1", "d2", "d3")


def text_of(random: Random) -> str:
    return "".join(random.choices(CHARACTERS, k=random.randrange(9)))


def body_of(random: Random) -> str:
    lines = [
        random.choice(MARKS) if random.random() < 0.6 else text_of(random)
        for _ in range(random.randrange(7))
    ]
    return unix_lines("\n".join(lines))


def full(text: str) -> str:
    return text if text.strip() else "x"


def demonstration_of(random: Random, id: str) -> Demonstration:
    messages: list[Message] = [
        {"role": random.choice(["user", "assistant"]), "content": body_of(random)}
        for _ in range(random.randint(1, 2))
    ]
    return Demonstration(id, tuple(messages), text_of(random))


def skill_of(random: Random, name: str) -> Skill:
    extra = random.choice([{}, {}, {"license": "MIT", "metadata": {"a": text_of(random)}}])
    return Skill(name, full(body_of(random)), body_of(random), extra)


def some(random: Random, items: Sequence[str]) -> list[str]:
    return [item for item in items if random.random() < 0.5]


def tool_of(random: Random, name: str) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": name, "description": full(body_of(random))}
    if parameters := some(random, ["p", "q"]):
        properties = {key: {"description": full(body_of(random))} for key in parameters}
        tool["parameters"] = {"properties": properties}
    return tool


def harness_of(seed: int) -> Harness:
    random = Random(seed)
    skills = [skill_of(random, name) for name in some(random, NAMES)]
    return Harness(
        instructions=body_of(random),
        demonstrations=tuple(demonstration_of(random, id) for id in some(random, IDS)),
        skills=tuple(sorted(skills, key=lambda skill: skill.name)),
        tools=tuple(tool_of(random, name) for name in some(random, ["bash", "db.query", "db"])),
        model=text_of(random),
        sampling=Sampling(
            temperature=random.choice([0.0, 0.7, random.random()]),
            max_tokens=random.randint(1, 999),
            stop=tuple(filter(None, (text_of(random) for _ in range(random.randrange(3))))),
        ),
        limits=Limits(random.randint(1, 99)),
        picking=Picking(random.choice(list(Pick)), random.randint(1, 9)),
        files={
            f"skills/{skill.name}/references/{name}": body_of(random)
            for skill in skills
            for name in some(random, ["x.md", "y.md"])
        },
    )


def edit_of(seed: int, harness: Harness) -> Edit:
    """Any edit, most of them near to one that can be applied."""
    random = Random(seed)
    component = random.choice([*harness.components(), "skills", "tools.json", "nonsense"])
    anchors = [
        *("", "", "description", "bash", "bash.p", "db.query", "sampling.temperature", "model"),
        *("demonstrations.k", "---"),
        *(item.id for item in harness.demonstrations),
        *(skill.name for skill in harness.skills),
        *harness.components().get(component, "").split("\n"),
    ]
    new = skill_of(random, random.choice(NAMES))
    record = {"name": new.name, "description": new.description, "body": new.body, **new.extra}
    contents = [
        *(body_of(random), body_of(random), json.dumps(record)),
        *(demonstration_of(random, random.choice([*IDS, "d4"])).line(), "1", '"x"'),
    ]
    op = random.choice(list(Op))
    content = "" if op is Op.DELETE else random.choice(contents)
    return Edit(op, component, random.choice(anchors), content)
