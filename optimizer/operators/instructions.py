"""A pool of ways to say how to act, and habits that help in many environments.

The ways to say it are alternatives: at most one is on at a time. Habits are independent of one
another. Whether telling helps at all is for the screen to find out; on top of demonstrations it
often hurts a small model.
"""

from __future__ import annotations

from optimizer.edits import Edit, Op
from optimizer.harness import INSTRUCTIONS

GROUP = "instructions.style"
ACTION_FORMAT = "a shell command, or `answer: ` with the result"

RULES = """Rules:
- Reply with exactly one line.
- The line is {action_format}.
- Do not explain and do not repeat the task.
- Look at the data before you answer.
- Answer as soon as you know."""
REMINDER = "Remember: one line per reply, {action_format}. Nothing else."
CONCISE = "Solve the task step by step. Each reply is {action_format}."


def instruction_pool(*, action_format: str = ACTION_FORMAT, support: int = 0) -> list[Edit]:
    """Explicit rules, a reminder of the format, and a concise text in place of the instructions.

    `action_format` says in the environment's words what an action looks like; `support` is the
    number of tasks that failed without.
    """
    variants = [
        ("instructions.rules", Op.APPEND, RULES),
        ("instructions.reminder", Op.APPEND, REMINDER),
        ("instructions.concise", Op.SET, CONCISE),
    ]
    return [
        Edit(
            op,
            INSTRUCTIONS,
            content=text.format(action_format=action_format),
            operator=operator,
            support=support,
            group=GROUP,
        )
        for operator, op, text in variants
    ]


HABITS = {
    "plan": "Before the first action, decide which facts you need and which action brings each.",
    "look": "Look at what is there before you change or answer anything; do not guess names.",
    "read_errors": "If an action fails, read the message, change what it complains about, and do "
    "not repeat the action unchanged.",
    "verify": "Before the last action, compare the result with each condition of the task.",
    "short": "Take the fewest actions that give the result, and stop as soon as you have it.",
    "exact": "Give the result exactly in the form that is asked for: no words, units or quotes "
    "around it.",
}


def habits(*, failed: int, erred: int = 0) -> list[Edit]:
    """One bullet for each habit. Support: the distinct tasks that failed, and for reading errors
    those in which an action met one.
    """
    return [
        Edit(
            Op.APPEND,
            INSTRUCTIONS,
            content=f"- {text}",
            operator=f"habit.{name}",
            support=erred if name == "read_errors" else failed,
        )
        for name, text in HABITS.items()
        if name != "read_errors" or erred
    ]
