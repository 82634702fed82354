"""Runs on servers of ours: as many as allowed, each rollout on a free slot, the broken replaced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments import admission
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.kinds.url import UrlKind
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalSpec
from orchestrator.environments.serving import server_spec
from orchestrator.runs import engine
from orchestrator.runs.models import Rollout, Run
from tests.base import People
from tests.doubles.openenv_servers import DOUBLES
from tests.runs.drive import assert_gapless, events, execute, make_endpoint, make_run
from tests.runs.faults import Scripted, version_for, wide_rubric

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = {"reward": 1.0, "done": True}


class LocalFaultKind(UrlKind):
    """The fault environment as a server of ours; every server has a work folder."""

    def server(  # type: ignore[override]
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> LocalSpec:
        run = "import sys; sys.modules['gradio'] = None; import uvicorn; uvicorn.main()"
        slots = resources.slots or 8
        return LocalSpec(
            name=name,
            command=(
                *(sys.executable, "-c", run, "fault_env:app", "--app-dir", str(DOUBLES)),
                *("--uds", "{socket}", "--log-level", "warning"),
            ),
            capacity=slots,
            env={"MAX_CONCURRENT_ENVS": str(slots), "FAULT_WORKDIR": "{work}"},
            max_servers=resources.max_servers,
            is_single_use=resources.is_single_use,
        )


RunScripts = Callable[..., Run]


@pytest.fixture
def run_scripts(people: People, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunScripts]:
    """`run_scripts(scripts, resources, **limits)`: one rollout for each script, executed."""
    monkeypatch.setitem(KINDS, "url", LocalFaultKind())

    def run_them(
        scripts: Sequence[Sequence[Any]],
        resources: dict[str, Any],
        *,
        concurrency: int = 8,
        **limits: Any,
    ) -> Run:
        version = version_for(people, "http://ours", limits, [{}] * len(scripts))
        version.resources = resources
        version.save()
        run = make_run(
            people.project,
            version=version,
            model=make_endpoint(people.project, "http://127.0.0.1:9", kind="openai"),
            rubric_version=wide_rubric(people),
            concurrency=concurrency,
        )
        agents = {
            rollout.task.key: Agent({}, script, lambda event: None)
            for rollout, script in zip(in_order(run), scripts, strict=True)
        }
        monkeypatch.setattr(
            engine,
            "conversation_for",
            lambda prepared, client, support, plan: agents[plan.rollout.task.key],
        )
        return execute(run)

    yield run_them
    engine.servers.close()


class Agent(Scripted):
    """An action `{"think": s}` takes that long to come up with the next one."""

    async def act(self, *, seed: int) -> Any:
        said = self.actions[self.turns]
        if "think" in said:
            self.turns += 1
            await asyncio.sleep(said["think"])
        return await super().act(seed=seed)


def in_order(run: Run) -> list[Rollout]:
    return list(Rollout.objects.filter(run=run).select_related("task", "stream").order_by("id"))


def ends(run: Run) -> list[tuple[str, str]]:
    return [(rollout.state, rollout.cause) for rollout in in_order(run)]


def capacities(run: Run) -> list[dict[str, Any]]:
    return [event.payload for event in events(run.stream_id, "capacity")]


def test_further_servers_start_while_rollouts_wait(run_scripts: RunScripts) -> None:
    """And never more than the limit, with never more episodes than slots."""
    work = [{"op": "sleep", "secs": 1.0}, GOOD]
    run = run_scripts([work] * 6, {"slots": 1, "max_servers": 2})
    assert ends(run) == [("scored", "")] * 6
    assert max(told["servers"] for told in capacities(run)) == 2
    assert all(told["in_use"] <= told["slots"] <= 2 for told in capacities(run))
    assert capacities(run)[0]["max_servers"] == 2
    waited = [e.payload for r in in_order(run) for e in events(r.stream_id, "waiting")]
    assert sorted({told["place"] for told in waited})[:3] == [1, 2, 3]
    # First come, first served: nobody is overtaken by more than those that run beside it.
    started = [events(r.stream_id, "rollout.started")[0].at for r in in_order(run)]
    assert started == sorted(started)
    assert_gapless()


@pytest.mark.slow
def test_f33_rollouts_that_must_not_share_files_get_servers_of_their_own(
    run_scripts: RunScripts,
) -> None:
    """B beside A, and C after both, find nothing of A's files."""
    write = {"op": "write", "path": "answer.txt", "blob": "hello"}
    run = run_scripts(
        [
            [write, {"op": "sleep", "secs": 1.5}, {"reward": 0.0, "done": True}],
            [{"op": "evaluate"}],
            [{"op": "evaluate"}],
        ],
        {"slots": 1, "max_servers": 2, "is_single_use": True},
    )
    assert [(r.state, r.reward) for r in in_order(run)] == [("scored", 0.0)] * 3


def test_a_dead_server_is_replaced_and_only_its_own_rollouts_end(run_scripts: RunScripts) -> None:
    run = run_scripts(
        [
            [{"op": "sleep", "secs": 0.5}, {"op": "exit"}],
            [{"op": "sleep", "secs": 5}, GOOD],
            [GOOD],
            [GOOD],
        ],
        {"slots": 2},
    )
    assert ends(run) == [
        ("errored", "server_lost"),
        ("errored", "server_lost"),
        ("scored", ""),
        ("scored", ""),
    ]
    first, second, *_ = in_order(run)
    assert "step 2 was running" in first.message
    assert "step 1 was running" in second.message


@pytest.mark.slow
def test_a_server_whose_slot_does_not_come_back_is_restarted(
    run_scripts: RunScripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "STUCK_S", 0.5)
    run = run_scripts(
        [[{"op": "sleep", "secs": 120}], [GOOD], [GOOD]], {"slots": 1}, step_timeout_s=0.5
    )
    assert ends(run) == [("errored", "step_timeout"), ("scored", ""), ("scored", "")]


def test_a_rollout_that_takes_too_long_is_ended_with_the_limit(run_scripts: RunScripts) -> None:
    """The wait for a slot does not count."""
    run = run_scripts(
        [[{"think": 60}, GOOD], [GOOD]], {"slots": 1}, concurrency=2, episode_timeout_s=1.0
    )
    slow, other = in_order(run)
    assert (slow.state, slow.cause, slow.reward) == ("errored", "rollout_timeout", None)
    assert "within 1 s (episode_timeout_s)" in slow.message
    assert (other.state, other.reward) == ("scored", 1.0)
    assert events(other.stream_id, "waiting")


def test_resources_that_cannot_be_used_fail_the_run_with_the_field(run_scripts: RunScripts) -> None:
    run = run_scripts([[GOOD]], {"max_servers": 65})
    assert run.state == "failed"
    assert run.error == "max_servers must be between 1 and 64"


def test_two_runs_on_a_version_share_its_servers(run_scripts: RunScripts) -> None:
    run = run_scripts([[GOOD]], {"slots": 1})
    version = run.environment_version
    gate = engine.servers.gate(server_spec(version))
    (place,) = gate.places()
    again = make_run(
        run.project,
        version=version,
        model=run.model,
        rubric_version=run.rubric_version,
        harness=in_order(run)[0].harness,
    )
    # The script of the first run is used up: the agent has nothing to say.
    execute(again)
    assert gate.places() == [place]
    assert ends(again) == [("errored", "internal")]
