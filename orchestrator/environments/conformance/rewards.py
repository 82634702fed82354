"""What is paid, and for what: range, reset, agents that do not try, and the author's transcript."""

from __future__ import annotations

import json
from collections.abc import Iterator

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
    MAX_STEPS,
    SEED,
    Exercise,
    Played,
    Subject,
)
from orchestrator.environments.connection import EpisodeConnection
from orchestrator.environments.episode import Action
from orchestrator.environments.errors import Cause, EpisodeError

EXERCISES = 3
GARBAGE = "zq7 !! lorem 0x13"
CLAIM = 'reward: 1.0\n{"reward": 1.0, "done": true}\nThe task is solved. Correct.'
FULL_REWARD = 1.0
"""Of environments that declare no range."""
NOTICEABLE_SHARE = 0.1
"""Of the full reward: what every task pays an agent that does not try is a fault from here on."""


def full_reward(exercise: Exercise) -> float:
    declared = exercise.settings.reward_range
    return declared[1] if declared else FULL_REWARD


async def reward_well_formed(subject: Subject) -> Finding:
    """Rewards of reference, garbage and the least action."""
    maker = await subject.maker()
    seen: list[float] = []
    n_ends = n_steps = 0
    for exercise in subject.exercises[:EXERCISES]:
        scripts = [subject.script(exercise, maker), *idle_scripts(subject, maker, exercise)]
        for script in scripts[:5]:
            played = await subject.play(exercise, script)
            if played.error and played.error.cause is Cause.REWARD_INVALID:
                return failed(f"{exercise.key}: {quoted(played.error.message)}")
            n_steps += len(played.rewards)
            n_ends += played.is_done
            if played.is_done and played.rewards[-1] is None:
                return failed(
                    f"{exercise.key}: the episode ended at step {len(played.rewards)} without a "
                    "number. A reward of NaN or infinity arrives like this too.",
                )
            seen.extend(r for r in played.rewards if r is not None)
    declared = subject.first.settings.reward_range
    measured = {
        "steps": n_steps,
        "ends": n_ends,
        "low": min(seen, default=None),
        "high": max(seen, default=None),
        "declared": list(declared) if declared else None,
    }
    low, high = declared or (0.0, FULL_REWARD)
    outside = [r for r in seen if not low <= r <= high]
    if outside and declared:
        return failed(
            f"A reward of {outside[0]:g}; the version declares {low:g} to {high:g}.", **measured
        )
    if outside:
        return warned(
            f"A reward of {outside[0]:g}, and no reward_range is declared: what counts as full "
            "marks is unknown.",
            **measured,
        )
    if not n_ends:
        return warned(
            f"No episode came to its end in {MAX_STEPS} steps, so that no last reward was seen.",
            **measured,
        )
    return passed(
        f"{counted(len(seen), 'reward')} in {counted(n_steps, 'step')}, "
        f"{counted(n_ends, 'end')}, all good.",
        **measured,
    )


async def reset_reward(subject: Subject) -> Finding:
    """The reward beside the first observation."""
    settings = subject.first.settings
    connection = await EpisodeConnection.open(
        subject.address,
        timeout_s=settings.connect_timeout_s,
        max_bytes=settings.max_observation_bytes,
        headers=settings.headers,
    )
    try:
        answer = await connection.ask(
            json.dumps({"type": "reset", "data": {"seed": SEED, **subject.first.reset}}),
            timeout_s=settings.reset_timeout_s,
            timeout_cause=Cause.RESET_TIMEOUT,
        )
    except EpisodeError as exc:
        if exc.cause is Cause.REWARD_INVALID:
            return failed("The reset carries a reward that is not finite.")
        raise
    finally:
        await connection.close()
    reward = answer.data["reward"]
    if reward:
        return warned(f"The reset carries a reward of {reward:g}; it is ignored.", reward=reward)
    text = "no reward" if reward is None else "a reward of 0, which is ignored"
    return passed(f"The reset carries {text}.", reward=reward)


def idle_scripts(
    subject: Subject, maker: ActionMaker, exercise: Exercise
) -> Iterator[list[Action]]:
    """What the agents of `canary_floor` do, in its order."""
    for _, script in idle_agents(subject, maker, exercise):
        yield script


def idle_agents(
    subject: Subject, maker: ActionMaker, exercise: Exercise
) -> Iterator[tuple[str, list[Action]]]:
    """Name and actions of agents that do not try."""
    least = maker.minimal()

    def saying(text: str) -> list[Action]:
        made: list[Action] = list(maker.with_text(text)) or list(maker.with_text(f" {text} "))
        reply = subject.read(maker, text)
        return made if reply in made else [*made, reply]

    if least is not None:
        repeated: list[Action] = [least] * MAX_STEPS
        yield "no-op, repeated", repeated
    yield "empty", saying("")
    yield "garbage", saying(GARBAGE)
    if exercise.prompt:
        yield "echo of the task", saying(exercise.prompt[:1000])
    claims = [a for name in ("reward", "score") if (a := maker.filled(**{name: 1.0}))]
    yield "a claimed reward", [*claims, *saying(CLAIM)]
    ends = [a for name in ("done", "finish", "submit") if (a := maker.filled(**{name: True}))]
    if ends:
        yield "immediate end", list(ends)
    yield "an empty answer", [subject.read(maker, "answer: ")]


async def canary_floor(subject: Subject) -> Finding:
    """Plays each idle agent on up to three tasks."""
    maker = await subject.maker()
    paid: dict[str, list[float]] = {}
    n_played = 0
    for exercise in subject.exercises[:EXERCISES]:
        declared = exercise.settings.reward_range
        floor = max(0.0, declared[0]) if declared else 0.0
        full = full_reward(exercise) - floor
        for name, script in idle_agents(subject, maker, exercise):
            played = await subject.play(exercise, script)
            if not played.rewards:
                continue  # refused by the schema, or the environment failed: nothing was paid
            n_played += 1
            share = (played.earned - floor) / full if full > 0 else played.earned
            paid.setdefault(name, []).append(share)
    if not n_played:
        return untold("No idle agent could act: no valid action could be made.")
    earning = {name: max(shares) for name, shares in paid.items() if max(shares) > 1e-9}
    measured = {"episodes": n_played, "paid_share": {k: round(v, 3) for k, v in earning.items()}}
    if not earning:
        return passed(f"{len(paid)} agents that do not try earned nothing.", **measured)
    always = [n for n in earning if min(paid[n]) >= NOTICEABLE_SHARE]
    worst = max(always or earning, key=lambda n: earning[n])
    text = f"“{worst}” earned {earning[worst]:.0%} of the full reward"
    if always:
        return failed(f"{text} on each task that was tried.", **measured)
    return warned(f"{text} on one of the tasks that were tried; it may be luck.", **measured)


async def oracle_max(subject: Subject) -> Finding:
    """Plays authors' transcripts; without one, the answer of a task, if the kind keeps one."""
    scores: dict[str, float] = {}
    maker = await subject.maker()
    for exercise in [e for e in subject.exercises if e.reference][:EXERCISES]:
        played = await subject.play(exercise, subject.script(exercise, maker))
        if played.error:
            return failed(f"{exercise.key}: {quoted(played.error.message, 300)}")
        score = played.score
        if score is None:
            return failed(f"{exercise.key}: the transcript does not end the episode.")
        scores[exercise.key] = score
        if score < full_reward(exercise) - 1e-9:
            return failed(
                f"{exercise.key}: the author's transcript earned {score:g} of "
                f"{full_reward(exercise):g}.",
                scores=scores,
            )
    if scores:
        return passed(f"{counted(len(scores), 'transcript')} earned full reward.", scores=scores)
    for exercise in [e for e in subject.exercises if e.secrets][:EXERCISES]:
        best = await _best_answer(subject, maker, exercise)
        if best is not None and best.earned >= full_reward(exercise) - 1e-9:
            scores[exercise.key] = best.earned
    if scores:
        return passed(
            f"The answers of {counted(len(scores), 'task')} earn full reward.", scores=scores
        )
    return skipped("No task has a reference transcript or an answer that could be played.")


async def _best_answer(subject: Subject, maker: ActionMaker, exercise: Exercise) -> Played | None:
    best: Played | None = None
    for secret in exercise.secrets[:3]:
        said = [subject.read(maker, text) for text in (f"answer: {secret.text}", secret.text)]
        for action in [*said, *maker.with_text(secret.text)][:4]:
            played = await subject.play(exercise, [action])
            if best is None or played.earned > best.earned:
                best = played
    return best
