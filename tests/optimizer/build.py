"""Harnesses, demonstrations and edits with defaults that a test overrides by keyword."""

from __future__ import annotations

import json
from typing import Any

from optimizer.edits import Edit, Op, demonstration_edit
from optimizer.harness import DEMONSTRATIONS, INSTRUCTIONS, Demonstration, Harness, Sampling
from optimizer.skills import Skill

SKILL = Skill("count-lines", "Counts lines. Use when asked how many.", "Use wc.\n")


def demonstration(id: str = "d1", **changes: Any) -> Demonstration:
    values: dict[str, Any] = {
        "messages": (
            {"role": "user", "content": f"File a.txt. How many lines? ({id})"},
            {"role": "assistant", "content": "wc -l < a.txt"},
            {"role": "user", "content": "3"},
            {"role": "assistant", "content": "answer: 3"},
        ),
        "source": f"train-{id}",
    }
    return Demonstration(id, **(values | changes))


def harness(**changes: Any) -> Harness:
    values: dict[str, Any] = {
        "instructions": "You answer questions.\n\nOne line per reply.\n",
        "sampling": Sampling(max_tokens=32, stop=("\n",)),
    }
    return Harness(**(values | changes))


def add(id: str) -> Edit:
    return demonstration_edit(demonstration(id), operator="demonstrations.reference", support=1)


def say(text: str, **changes: Any) -> Edit:
    return Edit(**({"op": Op.APPEND, "component": INSTRUCTIONS, "content": text} | changes))


def drop(id: str) -> Edit:
    return Edit(Op.DELETE, DEMONSTRATIONS, anchor=id)


def put(name: str, value: Any) -> Edit:
    return Edit(Op.SET, "harness.yaml", anchor=name, content=json.dumps(value))
