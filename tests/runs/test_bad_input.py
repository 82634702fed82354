"""What goes wrong outside ends as `errored` with its reason: never a zero, never the neighbours."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestrator.environments.session import EpisodeSession
from orchestrator.events.services import Fence, NewEvent, append
from orchestrator.jobs import lease
from orchestrator.runs import engine, queries
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState
from orchestrator.runs.recorder import Recorder, Write
from orchestrator.runs.services import start_run
from tests.base import People
from tests.doubles.model_server import Asked, Raw, Reply, Script, refusal
from tests.doubles.openenv_servers import raw_server, silent_port
from tests.live import free_port
from tests.runs.conftest import MakeModel, MakeServer
from tests.runs.drive import (
    FINISH,
    act,
    assert_gapless,
    events,
    execute,
    good,
    make_endpoint,
    make_run,
    make_version,
    number_of,
    rollouts,
)
from tests.runs.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)


def assert_errored(rollout: Rollout, cause: str, *words: str) -> None:
    """The state, the fixed code and a sentence; no number anywhere."""
    assert (rollout.state, rollout.score, rollout.reward) == (RolloutState.ERRORED, None, None)
    assert rollout.cause == cause, rollout.message
    for word in words:
        assert word in rollout.message
    last = events(rollout.stream_id)[-1]
    assert last.kind == "rollout.ended"
    assert (last.payload["cause"], last.payload["score"]) == (cause, None)
    assert last.payload["message"] == rollout.message
    assert rollout.ended_at is not None


def assert_nothing_scored(run: Run, cause: str, *words: str) -> None:
    """All rollouts errored alike; the run says that it decides nothing, and why."""
    assert run.state == RunState.COMPLETED_UNSCORED
    for rollout in rollouts(run):
        assert_errored(rollout, cause, *words)
    tally = queries.tally(run.pk)
    assert (tally.scored, tally.errored, tally.mean) == (0, tally.planned, None)
    assert rollouts(run)[0].message in run.error
    assert "0 of" in run.error
    assert_gapless()


def assert_only_the_first_errored(run: Run, cause: str, *words: str) -> None:
    first, *others = rollouts(run)
    assert_errored(first, cause, *words)
    assert [r.score for r in others] == [1.0] * len(others)
    tally = queries.tally(run.pk)
    assert (tally.errored, tally.mean) == (1, 1.0)
    assert_gapless()


def first_says(said: str | Reply | Raw) -> Script:
    """Task 0 gets this, its neighbours act well."""
    return lambda asked: said if number_of(asked) == 0 else good(asked)


# --- environments -------------------------------------------------------------------------------


def test_an_unknown_address(people: People, make_model: MakeModel) -> None:
    version = make_version(people.project, "http://no-such-host.invalid:8000")
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert_nothing_scored(run, "env_unreachable", "no-such-host.invalid:8000", "2 s")


def test_a_dead_server(people: People, make_model: MakeModel) -> None:
    port = free_port()
    version = make_version(people.project, f"http://127.0.0.1:{port}")
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert_nothing_scored(run, "env_unreachable", f"127.0.0.1:{port}")


def test_a_server_that_accepts_and_never_answers(people: People, make_model: MakeModel) -> None:
    with serving(silent_port()) as port:
        version = make_version(
            people.project, f"http://127.0.0.1:{port}", connect_timeout_s=0.3, tasks=2
        )
        run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert_nothing_scored(run, "env_unreachable", "0.3 s")


def test_a_reset_that_never_answers(people: People, fault_url: str, make_model: MakeModel) -> None:
    version = make_version(people.project, fault_url, tasks=2, reset_timeout_s=0.3)
    version.tasks.filter(key="t0").update(reset={"fault": "sleep", "secs": 1})
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert_only_the_first_errored(run, "reset_timeout", "0.3 s")


def test_a_step_that_never_answers(people: People, fault_url: str, make_model: MakeModel) -> None:
    model = make_model(first_says(act(op="sleep", secs=1)))
    version = make_version(people.project, fault_url, step_timeout_s=0.3)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "step_timeout", "Step 1", "0.3 s")


def test_a_server_that_dies_in_a_step(
    people: People, make_server: MakeServer, make_model: MakeModel
) -> None:
    model = make_model(lambda asked: act(op="exit"))
    version = make_version(people.project, make_server().base_url, tasks=1)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_nothing_scored(run, "server_lost", "step 1")


def test_a_full_session_table(
    people: People, make_server: MakeServer, make_model: MakeModel
) -> None:
    """One slot where 64 are assumed: the server's word counts, and the rollouts take turns."""

    def script(asked: Asked) -> str:
        threading.Event().wait(0.5)
        return FINISH

    server = make_server(env={"MAX_CONCURRENT_ENVS": "1"})
    version = make_version(people.project, server.base_url, slot_wait_s=0.3)
    run = execute(make_run(people.project, version=version, model_url=make_model(script).url))
    assert [(r.state, r.score, r.attempt) for r in rollouts(run)] == [("scored", 1.0, 1)] * 3
    waited = [e.payload for r in rollouts(run) for e in events(r.stream_id, "waiting")]
    assert {e["maximum"] for e in waited} == {1}
    assert_gapless()


def test_a_slot_that_somebody_else_holds(
    people: People, make_server: MakeServer, make_model: MakeModel
) -> None:
    server = make_server(env={"MAX_CONCURRENT_ENVS": "1"})
    with serving(held(server.base_url)):
        version = make_version(people.project, server.base_url, slot_wait_s=0.3, tasks=2)
        run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert_nothing_scored(run, "no_capacity", "0.3 s", "1 of 1 in use")
    for rollout in rollouts(run):
        assert events(rollout.stream_id, "waiting")


@asynccontextmanager
async def held(base_url: str) -> AsyncIterator[None]:
    """An outside client connects, resets and stays."""
    async with EpisodeSession.open(base_url) as session:
        await session.reset()
        yield


def test_an_action_that_the_schema_refuses(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    """The agent is told what is wrong, three times; then the episode ends without a score."""
    model = make_model(first_says(json.dumps({"op": "noop", "speed": 11})))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "action_rejected", "3 actions in a row", "speed")
    first = rollouts(run)[0]
    told = [
        e.payload["segments"]
        for e in events(first.stream_id, "observation")
        if e.payload.get("refused")
    ]
    assert len(told) == 2
    assert all(s["kind"] == "warning" and "speed" in s["text"] for (s,) in told)
    tokens = {kind for row in first.token_rows.all() for kind, _ in row.kinds}
    assert "env_output" not in tokens


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
def test_a_reward_that_is_not_finite(
    people: People, fault_url: str, make_model: MakeModel, reward: str
) -> None:
    """OpenEnv servers send such rewards as null; that is no zero either."""
    model = make_model(first_says(act(reward=reward, done=True)))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "reward_missing", "without a reward", "No score")


def test_a_reward_of_nan_on_the_wire(people: People, make_model: MakeModel) -> None:
    start = frame({"text": "go"}, None, done=False)
    end = frame({"text": "end"}, float("nan"), done=True)
    with serving(raw_server([start, end])) as url:
        version = make_version(people.project, url, tasks=1)
        run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert_nothing_scored(run, "reward_invalid", "step 1", "not a finite number")


def test_a_foreign_field_that_the_log_cannot_hold_is_left_out(
    people: People, make_model: MakeModel
) -> None:
    start = frame({"text": "go"}, None, done=False)
    end = frame({"text": "end", "exit_status": float("nan")}, 1.0, done=True)
    with serving(raw_server([start, end])) as url:
        version = make_version(people.project, url, tasks=1)
        run = execute(make_run(people.project, version=version, model_url=make_model().url))
    (rollout,) = rollouts(run)
    assert (rollout.state, rollout.score) == (RolloutState.SCORED, 1.0)
    (observed,) = events(rollout.stream_id, "observation")
    assert observed.payload["exit_status"] is None
    assert "NaN" in observed.payload["segments"][0]["text"]


def test_a_write_that_fails_takes_no_other_with_it(people: People) -> None:
    run = make_run(people.project, version=make_version(people.project, "http://127.0.0.1:9"))
    started = start_run(run=run)
    assert started.job_id is not None
    claimed = lease.claim(started.job_id)
    assert claimed is not None
    results = asyncio.run(_record_together(claimed.fence, run.stream_id))
    assert [type(result) for result in results] == [type(None), ValueError, type(None)]
    assert [e.payload["n"] for e in events(run.stream_id)] == [0, 2]
    assert_gapless()


async def _record_together(fence: Fence, stream_id: int) -> list[BaseException | None]:
    def write(n: float) -> Write:
        def apply() -> dict[int, list[NewEvent]]:
            append(stream_id=stream_id, items=[NewEvent("n", {"n": n})])
            return {}

        return Write(apply)

    async with Recorder(fence) as recorder:
        hold = threading.Event()

        def wait() -> dict[int, list[NewEvent]]:
            hold.wait(5)
            return {}

        # The first write waits, so that the others gather behind it in one commit.
        first = asyncio.ensure_future(recorder.record(Write(wait)))
        writes = [asyncio.ensure_future(recorder.record(write(n))) for n in (0, float("nan"), 2)]
        await asyncio.sleep(0.1)
        hold.set()
        await first
        await asyncio.wait(writes)
    return [task.exception() for task in writes]


# --- models -------------------------------------------------------------------------------------


def test_a_model_that_returns_empty_text(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(first_says(""))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "action_rejected", "3 actions in a row")


def test_a_model_that_returns_no_token_at_all(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    empty = {"token_ids": [], "logprobs": {"sampling_logprobs": []}}
    model = make_model(first_says(Reply("", changes=empty)))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "action_rejected")
    assert not rollouts(run)[0].token_rows.exists()


def test_a_model_that_returns_30_kilobytes(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    """It is recorded shortened, with its size; what the model saw is kept whole."""
    model = make_model(first_says(Reply("x" * 30_000, obeys_limits=False)))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "action_rejected", "3 actions in a row")
    first = rollouts(run)[0]
    action = events(first.stream_id, "action")[0].payload
    assert len(action["text"]) < 21_000
    assert "30000 characters in all" in action["text"]
    (row,) = first.token_rows.all()
    assert len(row.ids) > 90_000
    assert len(first.message) < 1_000


def test_a_model_that_is_down(
    people: People, fault_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MODEL_PATIENCE_S", 0.5)
    url = f"http://127.0.0.1:{free_port()}"
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=url))
    assert_nothing_scored(run, "model_unreachable", url, "0.5 s")


def test_a_model_that_never_answers(
    people: People, fault_url: str, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MODEL_PATIENCE_S", 0.5)
    held = threading.Event()

    def script(asked: Asked) -> str:
        if number_of(asked) == 0:
            held.wait(2.0)
        return FINISH

    version = make_version(people.project, fault_url)
    model = make_model(script)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    held.set()
    assert_only_the_first_errored(run, "model_timeout", model.url, "0.5 s")


def test_a_model_that_comes_back_is_waited_for(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model()
    model.stop()
    version = make_version(people.project, fault_url)
    back = threading.Timer(0.5, model.start)
    back.start()
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert queries.tally(run.pk).scored == 3


def test_a_model_that_refuses(people: People, fault_url: str, make_model: MakeModel) -> None:
    model = make_model(first_says(refusal(400, "temperature: must be at least 0")))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(
        run, "model_refused", model.url, "HTTP 400", "temperature: must be at least 0"
    )


def test_a_prompt_beyond_the_context(people: People, fault_url: str, make_model: MakeModel) -> None:
    text = "the prompt has 3000 tokens, 2048 fit"
    model = make_model(first_says(refusal(400, text, "context_length_exceeded")))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "context_overflow", text)


def test_a_model_that_does_not_answer_in_json(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(first_says(Raw(200, "<html>Welcome</html>")))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "model_reply_invalid", model.url, "not JSON")


def test_an_unknown_model(people: People, fault_url: str, make_model: MakeModel) -> None:
    endpoint = make_endpoint(people.project, make_model().url, model="other")
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model=endpoint))
    assert_nothing_scored(run, "model_refused", "HTTP 404", "'other'")


# --- limits of a run ----------------------------------------------------------------------------


@pytest.mark.parametrize(("errored", "state"), [(1, "completed"), (2, "completed_unscored")])
def test_too_few_scores_decide_nothing(
    people: People, fault_url: str, make_model: MakeModel, errored: int, state: str
) -> None:
    """4 of 5 scored is the floor."""

    def script(asked: Asked) -> str | Raw:
        return refusal(400, "no") if number_of(asked) < errored else FINISH

    version = make_version(people.project, fault_url, tasks=5)
    run = execute(make_run(people.project, version=version, model_url=make_model(script).url))
    assert run.state == state
    assert queries.tally(run.pk).mean == 1.0


def test_an_episode_beyond_its_steps_has_no_score(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(first_says(act(text="again", reward=0.5)))
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    assert_only_the_first_errored(run, "step_limit", "4 steps")


def test_a_version_with_wrong_settings_fails_the_run_with_the_reason(
    people: People, fault_url: str
) -> None:
    version = make_version(people.project, fault_url, step_limit=3)
    run = execute(make_run(people.project, version=version))
    assert run.state == RunState.FAILED
    assert "step_limit" in run.error
    for rollout in rollouts(run):
        assert_errored(rollout, "run_failed", "step_limit")
    assert_gapless()


# --- helpers ------------------------------------------------------------------------------------


def frame(observation: dict[str, Any], reward: float | None, *, done: bool) -> str:
    data = {"observation": observation, "reward": reward, "done": done}
    return json.dumps({"type": "observation", "data": data})
