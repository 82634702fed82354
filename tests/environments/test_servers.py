"""Servers as child processes: started, reused, replaced when dead, gone at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.environments.episode import EpisodeResult, View, run_episode
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.servers.pool import ServerPool
from orchestrator.environments.servers.url import UrlServer
from orchestrator.environments.terminal.tasks import generate
from tests.doubles.openenv_servers import DOUBLES
from tests.environments.conftest import needs_bubblewrap

GONE = 5.0


def _spec(**changes: object) -> LocalSpec:
    run = "import sys; sys.modules['gradio'] = None; import uvicorn; uvicorn.main()"
    fields: dict[str, object] = {
        "name": "fault",
        "command": (
            *(sys.executable, "-c", run, "fault_env:app", "--app-dir", str(DOUBLES)),
            *("--uds", "{socket}", "--log-level", "warning"),
        ),
        "capacity": 8,
        **changes,
    }
    return LocalSpec(**fields)  # type: ignore[arg-type]


def _exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE
    while _exists(pid) and time.monotonic() < deadline:
        os.sched_yield()
    return not _exists(pid)


def _wait_ended(server: LocalServer) -> bool:
    """Until its last thread has ended: the first one may be gone a moment earlier."""
    deadline = time.monotonic() + GONE
    while server.is_alive and time.monotonic() < deadline:
        os.sched_yield()
    return not server.is_alive


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ServerPool]:
    pool = ServerPool(tmp_path)
    yield pool
    pool.close()


def test_a_server_is_shared_and_a_dead_one_is_started_again(pool: ServerPool) -> None:
    spec = _spec()
    with pool.server(spec) as first, pool.server(spec) as second:
        assert first is second
        assert isinstance(first, LocalServer)
        assert pool.leases(spec) == 2
        pid = first.pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        assert _wait_ended(first)
    with pool.server(spec) as third:
        assert isinstance(third, LocalServer)
        assert third.is_alive
        assert third.pid != pid
        pid = third.pid
    pool.close_idle()
    assert pid is not None
    assert _wait_gone(pid)
    pool.close()


def test_a_command_that_fails_at_once_is_told_at_once_with_its_words(tmp_path: Path) -> None:
    code = "import sys; print('no such data set'); sys.exit(4)"
    server = LocalServer(_spec(command=(sys.executable, "-c", code)), tmp_path)
    started_at = time.monotonic()
    with pytest.raises(ServerStartError, match=r"status 4.*no such data set"):
        server.wait_for_ready(server.start_container())
    assert time.monotonic() - started_at < 30  # of the sixty for a start


@pytest.mark.slow
def test_a_server_whose_episodes_cannot_start_is_not_ready(tmp_path: Path) -> None:
    server = LocalServer(_spec(env={"FAULT_FACTORY": "1"}), tmp_path)
    with pytest.raises(ServerStartError, match="could not be created"):
        server.wait_for_ready(server.start_container())
    assert not server.is_alive


def test_a_server_that_never_listens_is_given_up(tmp_path: Path) -> None:
    code = "import signal; signal.pause()"
    server = LocalServer(_spec(command=(sys.executable, "-c", code)), tmp_path)
    base_url = server.start_container()
    with pytest.raises(ServerStartError, match=r"not ready within 0.5 s"):
        server.wait_for_ready(base_url, timeout_s=0.5)
    assert not server.is_alive
    server.stop_container()


def test_secrets_of_this_process_do_not_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "do-not-pass-on")
    code = "import os; print(sorted(os.environ), os.environ.get('MINE')); raise SystemExit(1)"
    server = LocalServer(
        _spec(command=(sys.executable, "-c", code), env={"MINE": "in {work}"}), tmp_path
    )
    with pytest.raises(ServerStartError) as caught:
        server.wait_for_ready(server.start_container())
    assert "SECRET_KEY" not in str(caught.value)
    assert "in /" in str(caught.value)


def test_stopping_ends_the_children_of_the_server_too(tmp_path: Path) -> None:
    code = "sleep 600 & echo child $!; trap '' TERM; wait; wait"
    server = LocalServer(_spec(command=("/bin/bash", "-c", code)), tmp_path)
    server.start_container()
    deadline = time.monotonic() + GONE
    while "child" not in server.log_tail() and time.monotonic() < deadline:
        os.sched_yield()
    child = int(server.log_tail().split()[1])
    assert _exists(child)
    server.stop_container()
    assert _wait_gone(child)


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = f"""
        import sys, threading
        from pathlib import Path
        from orchestrator.environments.servers.local import LocalServer, LocalSpec
        spec = LocalSpec("x", (sys.executable, "-c", "import signal; signal.pause()"), 1)
        server = LocalServer(spec, Path({str(tmp_path)!r}))
        # The thread that asks ends; the server must not end with it.
        starter = threading.Thread(target=server.start_container)
        starter.start()
        starter.join()
        print(server.pid, flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _exists(pid)
        parent.kill()
        parent.wait()
    assert _wait_gone(pid)


@pytest.mark.slow
def test_a_server_of_others_is_probed_and_left_alone(tmp_path: Path) -> None:
    nobody = UrlServer("http://127.0.0.1:1", capacity=4)
    assert nobody.start_container() == "http://127.0.0.1:1"
    with pytest.raises(ServerStartError, match="not ready within"):
        nobody.wait_for_ready(nobody.base_url, timeout_s=0.3)
    with LocalServer(_spec(), tmp_path) as local:
        UrlServer(local.base_url, capacity=4).wait_for_ready(local.base_url)
        assert local.is_alive


@pytest.mark.slow
async def test_f33_each_local_rollout_has_its_own_folder(tmp_path: Path) -> None:
    spec = _spec(env={"FAULT_WORKDIR": "{work}"})

    async def rollout(name: str, actions: list[dict[str, object]]) -> EpisodeResult:
        server = LocalServer(spec, tmp_path / name)
        try:
            base_url = await asyncio.to_thread(server.start_container)
            await asyncio.to_thread(server.wait_for_ready, base_url)
            return await run_episode(base_url, lambda view: actions[view.number - 1])
        finally:
            await asyncio.to_thread(server.close)

    write: dict[str, object] = {"op": "write", "path": "answer.txt", "blob": "hello"}
    a = asyncio.create_task(
        rollout("a", [write, {"op": "sleep", "secs": 3}, {"reward": 0.0, "done": True}])
    )
    await asyncio.sleep(1)
    b = await rollout("b", [{"op": "evaluate"}])
    assert (b.state, b.reward, b.n_steps) == ("scored", 0.0, 1)
    assert (await a).state == "scored"


@needs_bubblewrap
async def test_terminal_tasks_are_solved_by_their_authors_transcripts(pool: ServerPool) -> None:
    kind = KINDS["terminal"]
    tasks = generate(7, {"train": 14})
    spec = kind.server(
        name="terminal",
        source={},
        resources=Resources(),
        specs=[t.as_json() for t in tasks],
        data=pool.root,
    )
    assert spec is not None
    async with pool.ready_server(spec) as server:
        base_url = server.base_url

        async def solve(index: int) -> EpisodeResult:
            task = tasks[index]
            said = [m["content"] for m in task.reference]

            async def policy(view: View) -> object:
                if view.number > 1:
                    read = "".join(s["text"] for s in kind.segments(view.observation))
                    assert read == said[1]
                return kind.action_of(said[2 * (view.number - 1)])

            return await run_episode(base_url, policy, reset={"task": task.key})  # type: ignore[arg-type]

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(solve(i)) for i in range(len(tasks))]
    assert [(r.result().state, r.result().reward) for r in running] == [("scored", 1.0)] * 14
