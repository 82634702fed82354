"""Rows of the world of four files: one character, one token. Pure.

list files ⏎ $ ls ⏎ [out] ⏎ app.log ⏎ … ⏎
context      action warning   env_output
"""

from __future__ import annotations

from collections.abc import Sequence

from training.reproduction.files import Exercise, run
from training.types import Row, RowStatus, TokenKind

VOCABULARY = 128
"""ASCII."""
WARNING = "[out]\n"


def rollout(
    exercise: Exercise,
    command: str,
    *,
    name: str,
    reward: float,
    logprobs: Sequence[float] = (),
    version: str = "",
) -> Row:
    """`logprobs`: the sampler's, of the command's characters and the line's end."""
    pieces = (
        (f"{exercise.question}\n$ ", TokenKind.CONTEXT),
        (f"{command}\n", TokenKind.ACTION),
        (WARNING, TokenKind.WARNING),
        (run(command), TokenKind.ENV_OUTPUT),
    )
    ids = [ord(character) for text, _ in pieces for character in text]
    kinds = [kind for text, kind in pieces for _ in text]
    sampled = iter(logprobs)
    stored = [next(sampled) if k is TokenKind.ACTION else 0.0 for k in kinds] if logprobs else None
    return Row(
        rollout=name,
        group=exercise.question,
        reward=reward,
        status=RowStatus.OK,
        ids=tuple(ids),
        kinds=tuple(kinds),
        logprobs=None if stored is None else tuple(stored),
        weight_version=version,
    )


def beginning(exercise: Exercise, command: str) -> Row:
    """Question and command alone: for the probability of saying it."""
    whole = rollout(exercise, command, name=command, reward=0.0)
    end = len(f"{exercise.question}\n$ {command}\n")
    return Row(
        rollout=whole.rollout,
        group=whole.group,
        reward=None,
        status=RowStatus.OK,
        ids=whole.ids[:end],
        kinds=whole.kinds[:end],
        logprobs=None,
    )


def oracle(exercises: Sequence[Exercise]) -> list[Row]:
    """Each exercise solved: whoever wrote them is none of the policies that are trained."""
    return [
        rollout(each, each.command, name=f"oracle {each.command}", reward=1.0) for each in exercises
    ]
