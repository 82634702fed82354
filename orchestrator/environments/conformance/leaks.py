"""Is the answer given away: in what agents see, in metadata, in the state.

Three ways, from certain to suspected. Known secrets of a task (fields that its kind marks, its
transcript) are looked for verbatim. Without a hit, numbers and texts that stand in metadata or
state alone are played as answers: what wins is a leak, whoever wrote the environment. What only has
a telling name is reported as a suspicion.

Short secrets (`7`) stand in every environment somewhere. They count only at a place with a telling
name, or at one that holds the secret of each of several tasks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.environments.conformance.comparing import IDENTITY_FIELDS, leaves
from orchestrator.environments.conformance.finding import (
    Finding,
    counted,
    failed,
    passed,
    quoted,
    warned,
)
from orchestrator.environments.conformance.probing import ActionMaker
from orchestrator.environments.conformance.rewards import EXERCISES, GARBAGE, full_reward
from orchestrator.environments.conformance.subject import Exercise, Played, Secret, Subject
from orchestrator.environments.episode import Action
from orchestrator.environments.errors import EpisodeError

LONG_CHARS = 6
"""From here on a secret's text is no accident."""
MOST_CANDIDATES = 10
"""Values of metadata and state that are played as answers."""
_TELLING = re.compile(
    r"answer|solution|expected|target|secret|truth|gold|correct|label|hidden", re.IGNORECASE
)


@dataclass(frozen=True)
class Shown:
    """Everything that an environment shows before it is solved, by path."""

    visible: dict[str, Any]
    """Of the observation."""
    hidden: dict[str, Any]
    """Of metadata and state."""

    @property
    def all(self) -> dict[str, Any]:
        return {**self.visible, **self.hidden}


async def no_solution_leakage(subject: Subject) -> Finding:
    """See the module's text."""
    exercises = subject.exercises[:EXERCISES]
    shown = [await _look(subject, exercise) for exercise in exercises]
    if leak := _verbatim(exercises, shown):
        path, secret = leak
        who = "agents see it" if path.startswith("observation") else "agents here do not see it"
        return failed(
            f"{secret.where} ({len(secret.text)} characters) stands in {path}; {who}.",
            path=path,
            secret=secret.where,
        )
    maker = await subject.maker()
    if path := await _winning_path(subject, maker, exercises[0], shown[0]):
        return failed(
            f"An agent that reads {path} wins by it. Agents here do not see it.", path=path
        )
    n_secrets = sum(len(e.secrets) for e in exercises)
    if telling := [p for p in shown[0].hidden if _TELLING.search(p) and _says(shown[0].hidden[p])]:
        return warned(
            f"May hold the answer: {quoted(', '.join(telling[:3]))}. Agents here do not see it.",
            paths=telling[:10],
        )
    return passed(
        f"{counted(n_secrets, 'secret')} of {counted(len(exercises), 'task')} looked for and not "
        "found; nothing in metadata or state wins.",
        secrets=n_secrets,
        values=len(shown[0].all),
    )


async def _look(subject: Subject, exercise: Exercise) -> Shown:
    """Reset, metadata and state. `EpisodeError` if no episode starts."""
    async with subject.episode(exercise) as (session, first):
        try:
            state = await session.state()
        except EpisodeError:
            state = {}
    return Shown(
        visible=dict(leaves(first.fields, "observation")),
        hidden=dict([*leaves(first.metadata, "metadata"), *leaves(state, "state")]),
    )


def _verbatim(exercises: Iterable[Exercise], shown: list[Shown]) -> tuple[str, Secret] | None:
    """Path and secret of the first certain hit."""
    by_path: Counter[str] = Counter()
    first_at: dict[str, Secret] = {}
    distinct: dict[str, set[str]] = {}
    for exercise, view in zip(exercises, shown, strict=True):
        for secret in exercise.secrets:
            told = secret.text in exercise.prompt
            for path, value in view.all.items():
                if not _holds(value, secret.text) or (told and path in view.visible):
                    continue
                is_long = len(secret.text) >= LONG_CHARS and not told
                if is_long or (_TELLING.search(path) and path in view.hidden):
                    return path, secret
                by_path[path] += 1
                first_at.setdefault(path, secret)
                distinct.setdefault(path, set()).add(secret.text)
    for path, count in by_path.items():
        if count > 1 and len(distinct[path]) > 1:
            return path, first_at[path]
    return None


def _holds(value: Any, secret: str) -> bool:
    if not _says(value):
        return False
    text = value if isinstance(value, str) else f"{value:g}"
    return text.strip() == secret.strip() or (len(secret) >= LONG_CHARS and secret in text)


def _says(value: Any) -> bool:
    """Whether a value could be an answer."""
    if isinstance(value, bool) or value is None:
        return False
    return not isinstance(value, str) or bool(value.strip())


async def _winning_path(
    subject: Subject, maker: ActionMaker, exercise: Exercise, shown: Shown
) -> str:
    """Path in metadata or state whose value, played as an answer, is paid; else empty."""
    visible = {str(v) for v in shown.visible.values()}
    candidates = [
        path
        for path, value in shown.hidden.items()
        if _says(value)
        and len(str(value)) <= 200
        and str(value) not in visible
        and path.rpartition(".")[2] not in IDENTITY_FIELDS
    ]
    candidates.sort(key=lambda path: not _TELLING.search(path))
    base = Played(exercise)
    if candidates:
        base = await subject.play(exercise, list(maker.with_text(GARBAGE)))
    for path in candidates[:MOST_CANDIDATES]:
        for form in ("{}", "[{}]"):
            played = await _answer_from(subject, maker, exercise, path, form)
            if played.earned >= base.earned + 0.5 * full_reward(exercise):
                return path
    return ""


async def _answer_from(
    subject: Subject, maker: ActionMaker, exercise: Exercise, path: str, form: str
) -> Played:
    """Reads the value in this very episode, so that it holds where starts are random too."""
    played = Played(exercise)
    try:
        async with subject.episode(exercise) as (session, first):
            state = await session.state()
            now = dict([*leaves(first.metadata, "metadata"), *leaves(state, "state")])
            for action in answers(maker, now.get(path), form)[:4]:
                if await played.step(session, action):
                    break
    except EpisodeError as exc:
        played.error = exc
    return played


def answers(maker: ActionMaker, value: Any, form: str) -> list[Action]:
    """Actions that say the value."""
    if not _says(value):
        return []
    is_number = isinstance(value, int | float)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    said: list[Action] = list(maker.with_text(form.format(text)))
    return [*(maker.with_number(value) if is_number and form == "{}" else ()), *said]
