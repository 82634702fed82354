"""The fault cases of `tests/vectors/openenv_faults.json` against real servers.

Every case and variant is read from the file. Not driven by the general test: F10 (a direct call,
below), F33 (two servers of the provider, in `test_servers`) and F36 (the worker is killed). The
same cases through the whole engine, F33 and F36 too, are in `tests/runs/test_fault_vectors`. F16
and F30 have a further test for the probe.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.episode import (
    Actions,
    EpisodeEvent,
    EpisodeResult,
    View,
    run_episode,
)
from orchestrator.environments.errors import Cause
from orchestrator.environments.probe import SeedEffect, probe
from orchestrator.environments.session import EpisodeSession, EpisodeSettings
from tests.doubles.openenv_servers import FaultServer, raw_server, silent_port
from tests.environments.conftest import ServerFactory
from tests.openenv_faults import VECTORS, cases, expanded, outcomes

ELSEWHERE = {"F10", "F33", "F36"}
SLOW = {"F01", "F02", "F03", "F04", "F08", "F11", "F12", "F18", "F25"}
SETTING_NAMES = {f.name for f in fields(EpisodeSettings)}


def _cases() -> list[Any]:
    params = []
    for name, case in cases():
        provoke = case["provoke"]
        if case["id"] in ELSEWHERE:
            continue
        own = "server_env" in provoke or "server_args" in provoke
        is_slow = case["id"] in SLOW or own or provoke["target"] == "fault_mcp_env"
        params.append(pytest.param(case, id=name, marks=[pytest.mark.slow] if is_slow else []))
    return params


@dataclass
class Trial:
    """One rollout of a case: a scripted policy, the events it causes, and what was seen."""

    provoke: dict[str, Any]
    actions: list[dict[str, Any]]
    server: FaultServer | None = None
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[EpisodeEvent] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    n_asked: int = 0

    def policy(self, view: View) -> Actions:
        """A plain function: the driver has to keep it off the event loop."""
        self.views.append(view)
        self.n_asked += 1
        for event in self._events("before", f"step {self.n_asked}"):
            if "blocks its thread" in event["do"]:
                time.sleep(4)  # noqa: TID251 (the fault)
            else:
                asyncio.run(self._do(event))
        if self.provoke.get("one_turn"):
            return self.actions
        return self.actions[self.n_asked - 1] if self.n_asked <= len(self.actions) else None

    async def hook(self, event: EpisodeEvent) -> None:
        self.seen.append(event)
        if event.kind == "action":
            await self._moment("during", f"step {event.payload['step']}")
        elif event.kind == "step":
            await self._moment("after", f"step {event.payload['step']}")
        elif event.kind == "waiting" and self.kinds().count("waiting") == 1:
            await self._moment("during", "waiting")

    def kinds(self) -> list[str]:
        return [event.kind for event in self.seen]

    def _events(self, moment: str, name: str) -> list[dict[str, Any]]:
        return [e for e in self.provoke.get("events", []) if e.get(moment) == name]

    async def _moment(self, moment: str, name: str) -> None:
        for event in self._events(moment, name):
            if "after_s" in event:
                self.tasks.append(asyncio.ensure_future(self._do(event, event["after_s"])))
            else:
                await self._do(event)

    async def _do(self, event: dict[str, Any], after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        if event["do"] == "cancel_rollout":
            self.cancel.set()
            return
        assert self.server is not None
        if event["do"] == "start_server":
            await self.server.start()
        else:
            self.server.send(signal.Signals[event["signal"]])


def _settings(provoke: dict[str, Any]) -> EpisodeSettings:
    given = {k: v for k, v in provoke.get("settings", {}).items() if k in SETTING_NAMES}
    if given.get("reward_range"):
        given["reward_range"] = tuple(given["reward_range"])
    return EpisodeSettings(**given)


@asynccontextmanager
async def _target(
    provoke: dict[str, Any], shared: ServerFactory, own: ServerFactory, tmp_path: Path
) -> AsyncIterator[tuple[str, FaultServer | None]]:
    """Base address of the case's server, and the server where it is a process."""
    async with AsyncExitStack() as stack:
        if provoke["target"] == "raw_server":
            yield await stack.enter_async_context(raw_server(expanded(provoke["replies"]))), None
            return
        if provoke["target"] == "none":
            if "accepts and never answers" in provoke["port"]:
                port = await stack.enter_async_context(silent_port())
            else:
                with socket.socket() as probe_socket:
                    probe_socket.bind(("127.0.0.1", 0))
                    port = probe_socket.getsockname()[1]
            yield f"http://user:pass@127.0.0.1:{port}?token=secret", None
            return
        env = dict(provoke.get("server_env") or {})
        if "FAULT_WORKDIR" in env:
            env["FAULT_WORKDIR"] = str(tmp_path)
        exits = any(action.get("op") == "exit" for action in provoke.get("actions", []))
        signals = any("server" in event["do"] for event in provoke.get("events", []))
        if provoke.get("server_args") or "FAULT_WORKDIR" in env or exits or signals:
            server = own(provoke["target"], env, provoke.get("server_args"))
        else:
            server = shared(provoke["target"], **env)
        await server.ready()
        if provoke.get("hold_slot"):
            outside = EpisodeSession.open(server.base_url)
            await (await stack.enter_async_context(outside)).reset()
        yield server.base_url, server


async def _run(
    trial: Trial, base_url: str, provoke: dict[str, Any], tmp_path: Path
) -> EpisodeResult:
    names = provoke.get("settings", {}).get("verifier_files", [])
    for name in names:
        (tmp_path / name).write_text('{"expected": "hello"}', encoding="utf-8")
    return await run_episode(
        base_url,
        trial.policy,
        _settings(provoke),
        reset=provoke.get("reset"),
        hook=trial.hook,
        cancel=trial.cancel,
        verifier_files=[tmp_path / name for name in names],
    )


def _check(case: dict[str, Any], result: EpisodeResult, address: str) -> None:
    expect = case["expect"]
    matching = [e for e in outcomes(case) if e["rollout_state"] == result.state]
    causes = [e["cause"] for e in matching if e["cause"] is not None]
    assert matching, result
    assert not causes or result.cause in causes, result
    if result.state != "scored":
        assert result.reward is None
        assert result.message.endswith("No score.")
    else:
        assert result.reward == pytest.approx(expect["reward"], abs=1e-9)
    if matching[0] is not expect:
        return
    for name in expect.get("message_names") or []:
        assert name.replace("<host:port>", address).lower() in result.message.lower(), result
    if expect.get("steps_completed") is not None:
        assert result.n_steps == expect["steps_completed"], result


@pytest.mark.parametrize("case", _cases())
async def test_the_episode_ends_as_the_vectors_say(
    case: dict[str, Any], shared_server: ServerFactory, own_server: ServerFactory, tmp_path: Path
) -> None:
    provoke = case["provoke"]
    async with _target(provoke, shared_server, own_server, tmp_path) as (base_url, server):
        if any(e.get("before") == "connect" for e in provoke.get("events", [])):
            assert server is not None
            server.send(signal.SIGSTOP)
        started_at = time.monotonic()
        if "rollouts" in provoke:
            await _several(case, base_url, server, tmp_path)
            return
        trial = Trial(provoke, expanded(provoke["actions"]), server)
        result = await _run(trial, base_url, provoke, tmp_path)
        took_s = time.monotonic() - started_at
        for task in trial.tasks:
            task.cancel()
    address = base_url.partition("@")[2].partition("?")[0]
    _check(case, result, address)
    assert "pass" not in result.message
    assert "secret" not in result.message
    EXTRA.get(case["id"], _nothing)(trial, result, took_s)


async def _several(
    case: dict[str, Any], base_url: str, server: FaultServer | None, tmp_path: Path
) -> None:
    provoke = case["provoke"]
    results: dict[str, EpisodeResult] = {}
    trials = {r["name"]: Trial(provoke, r["actions"], server) for r in provoke["rollouts"]}

    async def one(name: str) -> None:
        results[name] = await _run(trials[name], base_url, provoke, tmp_path)

    if "as soon as A has finished" in str(provoke["rollouts"]):
        await one("A")
        await one("B")
        assert (results["A"].state, results["A"].cause) == ("errored", "step_timeout")
        assert results["A"].reward is None
    else:
        async with asyncio.TaskGroup() as group:
            for name in trials:
                group.create_task(one(name))
    for name in case["expect"]["applies_to"].replace("and", "").replace(",", "").split():
        _check(case, results[name], "")
    waited = [name for name in results if "waiting" in trials[name].kinds()]
    assert waited
    for trial in trials.values():
        kinds = trial.kinds()
        assert "waiting" not in kinds[kinds.index("reset") :]


# --- what single cases ask for beyond state, cause, reward, message and steps --------------------

SOON_S = 15.0
"""The vectors' seconds are those of an idle machine. What goes unnoticed has another cause, which
is checked; this catches what hangs.
"""
Extra = Callable[[Trial, EpisodeResult, float], None]


def _nothing(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    """No further demand."""


def _f01(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert took_s < SOON_S
    steps = [e for e in trial.seen if e.kind == "step"]
    assert [e.payload["reward"] for e in steps] == [0.25]
    assert trial.seen[-1].kind == "action"
    assert trial.seen[-1].payload["action"]["op"] in ("sleep", "exit")


def _f02(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert trial.n_asked == 2
    assert 1.0 not in [e.payload.get("reward") for e in trial.seen]


def _f03(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert trial.n_asked == 2
    assert took_s < SOON_S


def _f07(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert [e.kind for e in trial.seen] == ["reset", "action"]
    assert len(json.dumps(trial.seen[-1].payload)) < 10_000
    assert trial.seen[-1].payload["size_chars"] > 17_000_000


def _f08(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    step = trial.seen[-1].payload
    assert step["is_shortened"]
    assert step["size_bytes"] > 20_000_000
    assert len(step["sha256"]) == 64
    assert len(json.dumps(step)) < 2**20
    assert "shortened: 20971520 characters" in step["observation"]["text"]


def _f12(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert took_s < SOON_S


def _f13(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert took_s < SOON_S


def _f14(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert "error" in result.raw


def _f19(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert trial.n_asked == 0
    assert "task" in result.raw


def _f21(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    reasons = {e.payload["reason"] for e in trial.seen if e.kind == "rejected"}
    assert reasons == {"opp: not allowed"}
    assert trial.views[1].rejection == "opp: not allowed"
    steps = [e for e in trial.seen if e.kind == "step"]
    assert [e.payload["observation"]["n"] for e in steps] in ([1], [])


def _f24(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert trial.kinds() == ["reset", "action", "step", "not_sent"]
    assert trial.seen[-1].payload["actions"] == [{"reward": 1.0, "done": True}]


def _f25(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    first, second = (e.payload for e in trial.seen if e.kind == "step")
    assert "timeout" in first["tool_error"]
    assert trial.views[1].observation["error"]["error_type"] == "timeout"
    assert second["tool_error"] == ""


def _f28(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    if result.state == "errored":
        assert result.claimed_reward == 7.5


def _f29(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert trial.n_asked == 5
    assert result.is_truncated == (result.state == "scored")
    if result.reward == -1.0:
        assert "truncation_reward" in result.note


def _f31(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    secret = str(7 * trial.views[0].observation["puzzle"])
    assert secret not in json.dumps([view.observation for view in trial.views])
    assert "metadata" not in trial.views[0].observation


def _f32(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    if result.state == "errored":
        assert result.claimed_reward == 1.0


def _f35(trial: Trial, result: EpisodeResult, took_s: float) -> None:
    assert took_s < SOON_S
    if trial.provoke.get("hold_slot"):
        assert set(trial.kinds()) == {"waiting"}
    else:
        assert "step" in trial.kinds()


EXTRA: dict[str, Extra] = {
    "F01": _f01,
    "F02": _f02,
    "F03": _f03,
    "F07": _f07,
    "F08": _f08,
    "F12": _f12,
    "F13": _f13,
    "F14": _f14,
    "F19": _f19,
    "F21": _f21,
    "F24": _f24,
    "F25": _f25,
    "F28": _f28,
    "F29": _f29,
    "F31": _f31,
    "F32": _f32,
    "F35": _f35,
}


def test_the_file_knows_no_cause_that_the_code_does_not() -> None:
    assert set(VECTORS["causes"]["codes"]) == set(Cause)


def test_the_defaults_are_those_of_the_file() -> None:
    defaults = {k: v for k, v in VECTORS["settings"]["defaults"].items() if k in SETTING_NAMES}
    settings = EpisodeSettings()
    assert {name: getattr(settings, name) for name in defaults} == defaults


async def test_f10_overlapping_steps_run_one_after_the_other(shared_server: ServerFactory) -> None:
    server = shared_server()
    await server.ready()
    async with EpisodeSession.open(server.base_url) as session:
        await session.reset(seed=1)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(session.step({}))
            second = group.create_task(session.step({"reward": 1.0, "done": True}))
        state = await session.state()
    assert (first.result().observation.fields["n"], second.result().observation.fields["n"]) == (
        1,
        2,
    )
    assert (first.result().reward, second.result().reward) == (None, 1.0)
    assert state["step_count"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "effect"),
    [({}, SeedEffect.HONOURED), ({"FAULT_IGNORE_SEED": "1"}, SeedEffect.IGNORED)],
)
async def test_f30_the_probe_tells_whether_a_seed_matters(
    env: dict[str, str], effect: SeedEffect, shared_server: ServerFactory
) -> None:
    server = shared_server("fault_env", **env)
    await server.ready()
    result = await probe(server.base_url)
    assert result.is_usable
    assert result.seed is effect


@pytest.mark.slow
async def test_f16_the_probe_does_not_believe_health(shared_server: ServerFactory) -> None:
    server = shared_server("fault_env", FAULT_FACTORY="1")
    await server.ready()
    result = await probe(server.base_url)
    assert not result.is_usable
    assert "could not be created" in result.message
