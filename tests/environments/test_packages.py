"""Code that nobody here wrote: installed into an environment of its own, served in the sandbox."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.episode import run_episode
from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.kinds.package import PackageKind
from orchestrator.environments.packages.capacity import measure_capacity
from orchestrator.environments.packages.install import prepare_package
from orchestrator.environments.packages.preparing import Prepared
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer
from orchestrator.environments.servers.provider import ClientProvider
from tests.environments.conftest import needs_bubblewrap
from tests.environments.scaffold import write_scaffold

pytestmark = needs_bubblewrap


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scaffold(tmp_path_factory.mktemp("scaffold"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def install(root: Path, check: Callable[[], None] = lambda: None, **source: Any) -> Prepared:
    PackageKind().check_source(source)
    return prepare_package(source, data=root, report=lambda step: None, check=check)


def serve(data: Path, prepared: Prepared, **resources: Any) -> LocalServer:
    spec = PackageKind().server(
        name="v1",
        source=prepared.source,
        resources=Resources(**resources),
        specs=[],
        data=data,
    )
    return spec.make(data / "v1" / spec.digest)


def test_the_scaffold_is_installed_and_played_in_the_sandbox(scaffold: Path, data: Path) -> None:
    prepared = install(data, path=str(scaffold))
    assert prepared.settings == {"reward_range": [0.0, 1.0]}
    assert prepared.source["declared"]["episode_timeout_s"] == 60.0
    with serve(data, prepared) as server:
        # One episode at a time, in its code; it has not promised more.
        assert asyncio.run(measure_capacity(server.base_url, 8)) == 1
        observations: list[dict[str, Any]] = []

        def act(view: Any) -> dict[str, Any]:
            observations.append(view.observation)
            return {"message": "hello"}

        result = asyncio.run(run_episode(server.base_url, act))
        assert observations[-1]["echoed_message"] == "hello"
        # Its episodes never end by themselves.
        assert result.cause == "step_limit"
    assert not server.is_alive


def test_a_version_stays_as_it_was_when_the_folder_changes(scaffold: Path, data: Path) -> None:
    before = install(data, path=str(scaffold))
    again = install(data, path=str(scaffold))
    assert again.source["installation"] == before.source["installation"]
    app = scaffold / "server" / "app.py"
    original = app.read_text()
    try:
        app.write_text("raise RuntimeError('edited since')")
        with serve(data, before):
            pass
        after = install(data, path=str(scaffold))
        assert after.source["installation"] != before.source["installation"]
        with pytest.raises(ServerStartError, match="RuntimeError: edited since"):
            serve(data, after).__enter__()
    finally:
        app.write_text(original)


def test_capacity_is_raised_only_where_it_is_asked_for(scaffold: Path, data: Path) -> None:
    prepared = install(data, path=str(scaffold), raise_capacity=True)
    with serve(data, prepared, slots=5) as server:
        assert server.capacity == 5
        assert asyncio.run(measure_capacity(server.base_url, 8)) == 5


def test_a_failed_import_shows_the_first_error_of_the_chain(scaffold: Path, data: Path) -> None:
    """Apps try another layout after any failure, which hides the reason behind another name."""
    app = scaffold / "server" / "app.py"
    original = app.read_text()
    hidden = "try:\n    import not_to_be_found\nexcept ImportError:\n    from modelz import X\n"
    try:
        app.write_text(hidden)
        prepared = install(data, path=str(scaffold))
    finally:
        app.write_text(original)
    with pytest.raises(ServerStartError, match="No module named 'not_to_be_found'") as told:
        serve(data, prepared).__enter__()
    assert "server/app.py:2" in str(told.value)


def test_variables_and_data_reach_the_server_and_nothing_else_does(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "not-for-servers")
    folder = tmp_path / "seen_env"
    (folder / "server").mkdir(parents=True)
    (folder / "server" / "app.py").write_text(
        "import json, os, sys\n"
        "data = os.environ['DATA']\n"
        "open(os.path.join(data, 'new'), 'w').write('x')\n"
        "seen = {'env': dict(os.environ), 'data': sorted(os.listdir(data)),\n"
        "        'gradio': 'gradio' in sys.modules,\n"
        "        'openenv': 'openenv.core.env_server.http_server' in sys.modules}\n"
        "raise RuntimeError('SEEN' + json.dumps(seen))\n"
    )
    files = tmp_path / "files"
    files.mkdir()
    (files / "task.txt").write_text("a task")
    prepared = install(
        data, path=str(folder), data=str(files), env={"DATA": "{data}", "MINE": "yes"}
    )
    server = serve(data, prepared)
    with pytest.raises(ServerStartError):
        server.__enter__()
    line = next(line for line in server.log_path.read_text().splitlines() if "SEEN{" in line)
    seen = json.loads(line[line.index("SEEN{") + 4 : line.rindex("}") + 1])
    assert seen["data"] == ["new", "task.txt"]
    assert list(files.iterdir()) == [files / "task.txt"]
    assert seen["env"]["MINE"] == "yes"
    assert seen["env"]["PIP_NO_INDEX"] == "1"
    assert seen["env"]["PYTHONDONTWRITEBYTECODE"] == "1"
    assert seen["env"]["PATH"].endswith("/venv/bin:/usr/bin:/bin")
    assert not {"SECRET_KEY", "SERVE_CONFIG", "PYTHONPATH"} & set(seen["env"])
    assert (seen["gradio"], seen["openenv"]) == (False, True)


def test_a_stopped_installation_leaves_nothing_behind(scaffold: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop() -> None:
        raise StopError

    with pytest.raises(StopError):
        install(tmp_path, stop, path=str(scaffold), requirements=["not-to-be-found-anywhere"])
    assert [path.suffix for path in (tmp_path / "packages").iterdir()] == [".lock"]


def test_two_installers_of_the_same_content_do_the_work_once(
    scaffold: Path, tmp_path: Path
) -> None:
    steps: list[str] = []

    def one(_: int) -> str:
        prepared = prepare_package(
            {"path": str(scaffold)}, data=tmp_path, report=steps.append, check=lambda: None
        )
        return str(prepared.source["installation"])

    with ThreadPoolExecutor(max_workers=3) as threads:
        (name,) = set(threads.map(one, range(3)))
    assert steps.count("Making a virtual environment") == 1
    left = sorted(path.name for path in (tmp_path / "packages").iterdir())
    assert left == [name, f"{name}.lock"]


def test_what_a_killed_installer_left_is_removed(scaffold: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = tmp_path / "packages" / f".staging-{gone.pid}-abcd"
    left.mkdir(parents=True)
    # Without its last file a folder is no installation, whatever else is in it.
    name = install(tmp_path, path=str(scaffold)).source["installation"]
    assert not left.exists()
    (tmp_path / "packages" / name / "installed.json").unlink()
    (tmp_path / "packages" / name / "src" / "demo_env" / "server" / "app.py").unlink()
    install(tmp_path, path=str(scaffold))
    assert (tmp_path / "packages" / name / "src" / "demo_env" / "server" / "app.py").exists()


def test_an_installation_ends_at_its_deadline(
    scaffold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.environments.packages.pip.DEADLINE_S", 0.0)
    with pytest.raises(SourceError, match="took more than 0 s"):
        install(tmp_path, path=str(scaffold), requirements=["not-to-be-found-anywhere"])


def test_an_installation_that_is_missing_says_what_to_do(data: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "installed.json").write_text('{"apps": []}')
    (tmp_path / "data" / "packages").mkdir(parents=True)
    for name in ("0" * 24, "", "../../outside", str(outside)):
        source = {"path": "/srv/env", "installation": name}
        with pytest.raises(ServerStartError, match="register the source on this machine"):
            serve(tmp_path / "data", Prepared(source))


async def test_openenvs_own_client_takes_our_servers(scaffold: Path, data: Path) -> None:
    from openenv.core import GenericEnvClient

    server = serve(data, install(data, path=str(scaffold)))
    async with GenericEnvClient(provider=ClientProvider(server)) as client:
        await client.reset()
        result = await client.step({"message": "hello"})
        assert result.observation["echoed_message"] == "hello"
        assert result.reward == pytest.approx(0.5)
        assert server.is_alive
    assert not server.is_alive


@pytest.mark.slow
def test_a_package_that_is_not_there_is_told_in_pips_words(scaffold: Path, data: Path) -> None:
    with pytest.raises(SourceError, match=r"the installation failed: .*not-to-be-found-anywhere"):
        install(data, path=str(scaffold), requirements=["not-to-be-found-anywhere"])
