"""The same again: does the seed decide the start, do actions the rest, is a neighbour heard."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from orchestrator.environments.conformance.comparing import comparable, differing_paths, leaves
from orchestrator.environments.conformance.finding import (
    Finding,
    counted,
    failed,
    passed,
    quoted,
    skipped,
    untold,
    warned,
)
from orchestrator.environments.conformance.probing import ActionMaker
from orchestrator.environments.conformance.subject import (
    OTHER_SEEDS,
    SEED,
    Exercise,
    Played,
    Subject,
)
from orchestrator.environments.episode import Action
from orchestrator.environments.errors import ActionRejectedError, Cause, EpisodeError
from orchestrator.environments.session import EpisodeSession

_CLOCK = re.compile(r"time|_at$|elapsed|created|started|clock", re.IGNORECASE)
_PLACES = (".", "..", "/tmp", "/var/tmp", "/dev/shm", "$HOME")
"""Where an agent's commands may leave something for a neighbour's."""
SHELL_FIELDS = ("command", "cmd", "bash", "shell")


async def seed_control(subject: Subject) -> Finding:
    """One seed twice and two others once, on fresh sessions; starts, states and a few steps."""
    exercise, maker = subject.first, await subject.maker()
    script = subject.script(exercise, maker)
    plays = [await subject.play(exercise, script, seed=s) for s in (SEED, SEED, *OTHER_SEEDS)]
    if any(p.error and not p.has_started for p in plays):
        return untold(_first_error(plays), seed="unknown")
    same, again, *others = plays
    if paths := differing_paths(_start(same), _start(again)):
        return failed(
            f"Two resets with seed {SEED} differ in {', '.join(paths)}: the seed is ignored and "
            "starts are random.",
            seed="ignored",
            is_random=True,
            paths=paths,
        )
    if any(_start(same) != _start(other) for other in others):
        return passed("The same seed repeats the start, another changes it.", seed="honoured")
    if same.trace == again.trace and any(same.trace != other.trace for other in others):
        return passed("The seed decides how steps turn out.", seed="honoured")
    if len(subject.exercises) > 1 or exercise.reset:
        return passed(
            "The seed changes nothing and nothing is random: the task alone decides the start.",
            seed="ignored",
            is_random=False,
        )
    return warned(
        "The seed changes nothing that can be seen: every episode is the same one.",
        seed="ignored",
        is_random=False,
    )


def _start(played: Played) -> dict[str, Any]:
    """The first observation, and of the state what is no clock: a hidden number is part of it."""
    state = {k: v for k, v in played.first_state.items() if not _CLOCK.search(k)}
    return {"observation": comparable(played.first), "state": comparable(state)}


async def episode_determinism(subject: Subject) -> Finding:
    """The same actions twice, on up to two tasks."""
    maker = await subject.maker()
    n_steps = 0
    for exercise in subject.exercises[:2]:
        script = subject.script(exercise, maker)
        one, two = [await subject.play(exercise, script) for _ in range(2)]
        if error := one.error or two.error:
            return untold(f"{exercise.key}: {quoted(error.message, 300)}")
        n_steps += len(one.rewards)
        if paths := differing_paths(one.trace, two.trace):
            what = "Rewards" if one.rewards != two.rewards else "Observations"
            return failed(
                f"{exercise.key}: {what.lower()} of the same actions differ in {', '.join(paths)}.",
                paths=paths,
                steps=n_steps,
            )
    if not n_steps:
        return untold("No action could be made to repeat.")
    return passed(f"{counted(n_steps, 'step')} came out the same twice.", steps=n_steps)


async def episode_isolation(subject: Subject) -> Finding:
    """Two episodes side by side: as when alone, and without a trace of one another."""
    if subject.capacity == 1 or not await _two_fit(subject):
        return skipped("One episode at a time: there is no neighbour.")
    maker = await subject.maker()
    marker = f"switchback-{uuid.uuid4().hex[:12]}"
    left, right = subject.first, subject.exercises[-1]
    seeds = (SEED, OTHER_SEEDS[0])
    try:
        if seen := await _marker_seen(subject, maker, left, right, marker):
            return failed(f"What one episode sent was seen by its neighbour in {seen}.", seen=seen)
        scripts = [subject.script(e, maker) for e in (left, right)]
        alone = [
            await subject.play(exercise, script, seed=seed)
            for exercise, script, seed in zip((left, right), scripts, seeds, strict=True)
        ]
        twice = await subject.play(left, scripts[0], seed=seeds[0])
        together = await _interleaved(subject, (left, right), scripts, seeds)
    except EpisodeError as exc:
        return untold(quoted(exc.message, 300))
    if error := next((p.error for p in (*alone, twice) if p.error), None):
        return untold(quoted(error.message, 300))
    for name, one, other in zip(("first", "second"), alone, together, strict=True):
        if paths := differing_paths(one.trace, other.trace):
            if differing_paths(alone[0].trace, twice.trace):
                return untold(
                    "Episodes differ even when alone, so that a neighbour's influence cannot be "
                    "told from chance. No direct trace of a neighbour was found.",
                )
            return failed(
                f"With a neighbour the {name} episode differs from itself alone in "
                f"{', '.join(paths)}.",
                paths=paths,
            )
    n_steps = sum(len(p.rewards) for p in together)
    return passed(
        f"Two interleaved episodes ({n_steps} steps) came out as when alone.", steps=n_steps
    )


async def _two_fit(subject: Subject) -> bool:
    """Whether the server takes a second episode beside the first. `EpisodeError` for the first."""
    exercise = subject.first
    impatient = replace(exercise, settings=replace(exercise.settings, slot_wait_s=0))
    async with subject.episode(exercise):
        try:
            async with subject.episode(impatient, OTHER_SEEDS[0]):
                return True
        except EpisodeError as exc:
            if exc.cause is not Cause.NO_CAPACITY:
                raise
            return False


async def _marker_seen(
    subject: Subject, maker: ActionMaker, left: Exercise, right: Exercise, marker: str
) -> str:
    """Path in the neighbour's observations or state where the marker appeared; else empty."""
    async with (
        subject.episode(left) as (one, _),
        subject.episode(right, OTHER_SEEDS[0]) as (other, _),
    ):
        leaving, looking, tidying = marker_actions(maker, marker)
        for action in leaving:
            if not one.is_over:
                await _tried(one, action)
        shown = []
        for action in looking:
            if not other.is_over:
                shown.append(await _tried(other, action))
        shown.append(await other.state())
        for action in tidying:
            if not one.is_over:
                await _tried(one, action)
    for value in shown:
        for path, leaf in leaves(value):
            if isinstance(leaf, str) and marker in leaf:
                return path
    return ""


def marker_actions(
    maker: ActionMaker, marker: str
) -> tuple[list[Action], list[Action], list[Action]]:
    """Actions that leave a marker, that would show one left by a neighbour, and that remove it."""
    shell = next((name for name in maker.text_fields() if name in SHELL_FIELDS), None)
    if shell is not None:
        notes = [f"{d}/note-{marker[-12:]}.txt" for d in _PLACES]
        write = f"for f in {' '.join(notes)}; do echo {marker} > $f; done 2>/dev/null; true"
        commands = (write, f"cat {' '.join(notes)} 2>/dev/null; true", f"rm -f {' '.join(notes)}")
        return tuple(  # type: ignore[return-value] # three of them
            [a for a in [maker.filled(**{shell: command})] if a] for command in commands
        )
    # What says nothing of the marker itself: an environment may well echo.
    leaving: list[Action] = []
    leaving.extend(maker.with_text(marker))
    return leaving[:3], [a for a in [maker.minimal()] if a is not None], []


async def _interleaved(
    subject: Subject,
    exercises: tuple[Exercise, Exercise],
    scripts: list[list[Action]],
    seeds: tuple[int, int],
) -> list[Played]:
    """Both scripts step by step in turn; `EpisodeError` of whichever fails."""
    plays = [Played(exercise) for exercise in exercises]
    async with (
        subject.episode(exercises[0], seeds[0]) as (one, first),
        subject.episode(exercises[1], seeds[1]) as (two, second),
    ):
        plays[0].first, plays[1].first = first.fields, second.fields
        for pair in zip_longest(*scripts):
            for played, session, action in zip(plays, (one, two), pair, strict=True):
                if action is not None and not played.is_done:
                    await played.step(session, action)
    return plays


async def _tried(session: EpisodeSession, action: Action) -> dict[str, Any]:
    """The observation; empty for an action that does not fit."""
    try:
        return (await session.step(action)).observation.fields
    except ActionRejectedError:
        return {}


def _first_error(plays: list[Played]) -> str:
    return next(quoted(p.error.message, 300) for p in plays if p.error)
