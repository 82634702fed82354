"""Does an episode start, how quickly, and are schema, state and errors as they should be."""

from __future__ import annotations

import json
import re
import time

from orchestrator.environments.conformance.finding import (
    Finding,
    counted,
    failed,
    passed,
    quoted,
    untold,
    warned,
)
from orchestrator.environments.conformance.subject import OTHER_SEEDS, SEED, Subject
from orchestrator.environments.connection import EpisodeConnection, Refused
from orchestrator.environments.errors import Cause, EpisodeError

SLOW_RESET_S = 5.0
"""Resets of public environments: milliseconds to 15 s (openenv.md, P9)."""
_LEAKY = re.compile(r"Traceback \(most recent|File \"/|/(?:home|root|usr|app|opt|srv)/\S")


async def startup(subject: Subject) -> Finding:
    """A first connection and a first reset, timed apart."""
    settings = subject.first.settings
    try:
        started_at = time.monotonic()
        connection = await EpisodeConnection.open(
            subject.address,
            timeout_s=settings.connect_timeout_s,
            max_bytes=settings.max_observation_bytes,
            headers=settings.headers,
        )
        connect_s = time.monotonic() - started_at
        await connection.close()
        started_at = time.monotonic()
        async with subject.episode(subject.first) as (_, first):
            reset_s = time.monotonic() - started_at
    except EpisodeError as exc:
        return failed(quoted(f"{exc.cause}: {exc.message}", 400))
    return passed(
        f"Connected in {connect_s * 1000:.0f} ms, an episode started in {reset_s:.2f} s.",
        connect_ms=round(connect_s * 1000, 1),
        reset_s=round(reset_s, 3),
        observation_bytes=first.size_bytes,
    )


async def reset_time(subject: Subject) -> Finding:
    """Three resets one after the other."""
    times = []
    for seed in (SEED, *OTHER_SEEDS):
        started_at = time.monotonic()
        async with subject.episode(subject.first, seed):
            times.append(time.monotonic() - started_at)
    median_s, longest_s = sorted(times)[1], max(times)
    say = warned if median_s > SLOW_RESET_S else passed
    return say(
        f"A reset takes {median_s:.2f} s, at most {longest_s:.2f} s "
        f"({len(times)} resets; above {SLOW_RESET_S:g} s it warns).",
        median_s=round(median_s, 3),
        longest_s=round(longest_s, 3),
    )


async def action_schema(subject: Subject) -> Finding:
    """A schema is there, is a JSON schema, and a valid action can be made from it."""
    schema = await subject.schema()
    if schema is None:
        return warned("The server publishes no JSON schema of its actions at /schema.")
    maker = await subject.maker()
    fields = [name for name in schema.get("properties", {}) if name != "metadata"]
    if maker.calls_tools:
        if not maker.tools:
            return failed("The actions call tools, but list_tools names none.", tools=0)
        return passed(f"{counted(len(maker.tools), 'tool')} described.", tools=len(maker.tools))
    if maker.minimal() is None:
        return warned(
            "No valid action could be made from the schema; checks that need one are less exact.",
            fields=fields,
        )
    return passed(f"Fields: {quoted(', '.join(fields))}.", fields=fields)


async def state_contract(subject: Subject) -> Finding:
    """The state answers, and counts steps."""
    maker = await subject.maker()
    actions = subject.script(subject.first, maker)[:1]
    async with subject.episode(subject.first) as (session, _):
        try:
            before = await session.state()
        except EpisodeError as exc:
            return failed(quoted(exc.message, 300))
        after = before
        for action in actions:
            await session.step(action)
            after = await session.state()
    counts = before.get("step_count"), after.get("step_count")
    if counts[0] is None:
        return warned("The state has no step_count.", fields=list(before))
    if actions and counts[0] == counts[1]:
        return warned(f"step_count stays at {counts[0]} after a step.", fields=list(before))
    return passed("The state answers and counts steps.", fields=list(before))


async def error_answers(subject: Subject) -> Finding:
    """Frames that no server should accept, then a valid step on the same connection."""
    exercise, settings = subject.first, subject.first.settings
    maker = await subject.maker()
    bad = {
        "an unknown action": {"type": "step", "data": {"no_such_field_": 1}},
        "an unknown message type": {"type": "no_such_type"},
    }
    accepted, told, leaky = [], [], []
    connection = await EpisodeConnection.open(
        subject.address,
        timeout_s=settings.connect_timeout_s,
        max_bytes=settings.max_observation_bytes,
        headers=settings.headers,
    )

    async def ask(frame: str) -> None:
        await connection.ask(
            frame, timeout_s=settings.step_timeout_s, timeout_cause=Cause.STEP_TIMEOUT
        )

    try:
        await ask(json.dumps({"type": "reset", "data": {"seed": SEED, **exercise.reset}}))
        bad["an action with an unknown field"] = {
            "type": "step",
            "data": {**(maker.minimal() or {}), "no_such_field_": 1},
        }
        for what, message in [*bad.items(), ("text that is not JSON", None)]:
            try:
                await ask("{" if message is None else json.dumps(message))
            except Refused as exc:
                told.append(exc.code)
                if _LEAKY.search(exc.text):
                    leaky.append(f"{what}: {quoted(exc.text)}")
            except EpisodeError as exc:
                return failed(
                    f"{what.capitalize()} got no error answer ({exc.cause}); the episode is lost.",
                    codes=told,
                )
            else:
                accepted.append(what)
        if (action := maker.minimal()) is not None and not accepted:
            try:
                await ask(json.dumps({"type": "step", "data": action}))
            except Refused as exc:
                return warned(
                    f"After an error even a valid action is refused: {quoted(exc.text)}",
                    codes=told,
                )
            except EpisodeError as exc:
                return failed(f"After an error the episode is lost ({exc.cause}).", codes=told)
    finally:
        await connection.close()
    if leaky:
        return warned(f"Error answers show the server's inside. {leaky[0]}", codes=told)
    if accepted:
        return warned(
            f"Accepted as if valid: {', '.join(accepted)}. An agent's typing error would act.",
            codes=told,
        )
    if not told:
        return untold("Nothing was refused and nothing accepted.")
    return passed("Bad requests get an error and the episode goes on.", codes=told)
