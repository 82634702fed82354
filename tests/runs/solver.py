"""A model that solves terminal tasks by their wording once it has seen how an action looks."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.doubles.model_server import Asked

Pick = Callable[[str], str]


def whole(output: str) -> str:
    return output


def first_word(output: str) -> str:
    return output.split()[0]


def after_equals(output: str) -> str:
    return output.partition("=")[2]


SKILLS: list[tuple[str, str, Pick]] = [
    (r"(\S+): number of lines", "wc -l {0}", first_word),
    (r"(\S+): first line", "head -n 1 {0}", whole),
    (r"(\S+): last line", "tail -n 1 {0}", whole),
    (r"(\S+): line that starts with (\S+)", "grep ^{1} {0}", whole),
    (r"(\S+): sum of amounts", "awk -F, '{{s+=$2}} END {{print s}}' {0}", whole),
    (r"(\S+): number of ERROR lines", "grep -c ERROR {0}", whole),
    (r"(\S+): value of (\S+)", "grep ^{1} {0}", after_equals),
]


def skill(text: str) -> tuple[str, Pick] | None:
    """The command for a task and how its output becomes the answer; None if it is no task."""
    for pattern, command, pick in SKILLS:
        if found := re.fullmatch(pattern, text):
            return command.format(*found.groups()), pick
    return None


def solve(asked: Asked) -> str:
    """Command first, then the answer from its output."""
    known = skill(asked.last)
    if known is not None:
        return known[0]
    tasks = (skill(content) for role, content in reversed(asked.messages) if role == "user")
    _, pick = next(task for task in tasks if task is not None)
    return f"answer: {pick(asked.last)}"


def explain(asked: Asked) -> str:
    """What small instruction models do: talk."""
    return "To answer this question you can open the file and read it."


def learn(asked: Asked) -> str:
    """Explains, until there is an example in the prompt."""
    position = next(i for i, turn in enumerate(asked.messages) if skill(turn[1]))
    first = asked.messages[position + 1 : position + 2]
    is_example = bool(first) and first[0] == ("assistant", solve_first(asked, position))
    return solve(asked) if is_example else explain(asked)


def solve_first(asked: Asked, position: int) -> str:
    known = skill(asked.messages[position][1])
    return known[0] if known else ""
