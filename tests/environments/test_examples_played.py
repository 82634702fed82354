"""The examples *invoices* and *terminal files*, played by their references on real servers."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from orchestrator.environments.folders import FolderEnvironment, read_folder
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.kinds.acting import call_tool, interface_of
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.services import NewTask
from orchestrator.environments.session import EpisodeSession, StepOutcome
from tests.base import People
from tests.environments.conftest import needs_bubblewrap

EXAMPLES = Path(settings.BASE_DIR) / "examples"
SPLITS = {"train", "select", "test"}


@contextmanager
def served(found: FolderEnvironment, folder: Path) -> Iterator[str]:
    spec = KINDS[found.kind].server(
        name="e",
        source=found.source,
        resources=Resources(),
        specs=[{**(t.spec or {}), "key": t.key, "prompt": t.prompt} for t in found.tasks],
        data=folder,
    )
    assert isinstance(spec, LocalSpec)
    server = LocalServer(spec, folder / "server")
    try:
        # Readiness is waited for in a loop of its own, which a test's loop does not allow.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(server.wait_for_ready, server.start_container()).result()
        yield server.base_url
    finally:
        server.close()


@pytest.fixture(scope="module", params=["invoices", "terminal-files"])
def example(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FolderEnvironment, str]]:
    found = read_folder(EXAMPLES / request.param)
    with served(found, tmp_path_factory.mktemp("env")) as base_url:
        yield found, base_url


async def play(kind: str, base_url: str, task: NewTask) -> tuple[StepOutcome, list[str]]:
    """The reference's actions, and what the agent read after each."""
    assert task.reference is not None
    shown = []
    async with EpisodeSession.open(base_url) as session:
        await session.reset(**(task.reset or {}))
        interface = interface_of(KINDS[kind], session.schema, await session.list_tools())
        for message in task.reference:
            if message["role"] == "assistant":
                action = interface.read(message["content"])
                assert isinstance(action, Mapping)
                outcome = await session.step(action)
                segments = KINDS[kind].segments(outcome.observation.fields)
                shown.append("".join(segment["text"] for segment in segments))
    return outcome, shown


@needs_bubblewrap
async def test_every_reference_is_right_and_reads_as_the_environment_says(
    example: tuple[FolderEnvironment, str],
) -> None:
    found, base_url = example
    referenced = [task for task in found.tasks if task.reference]
    assert len(referenced) >= 20
    for task in referenced:
        end, shown = await play(found.kind, base_url, task)
        assert (task.key, end.reward, end.done) == (task.key, 1.0, True)
        told = [m["content"] for m in task.reference or () if m["role"] == "user"]
        assert shown[:-1] == told


def test_tasks_are_in_three_splits_and_only_train_tells_how(
    example: tuple[FolderEnvironment, str],
) -> None:
    found, _ = example
    assert len(found.tasks) >= 45
    assert {task.split for task in found.tasks} == SPLITS
    assert {task.split for task in found.tasks if task.reference} == {"train"}
    families = [{t.family for t in found.tasks if t.split == split} for split in SPLITS]
    assert families[0] == families[1] == families[2]
    assert found.rubric is not None
    assert found.harness is not None


@needs_bubblewrap
async def test_each_invoice_has_one_right_decision(tmp_path: Path) -> None:
    found = read_folder(EXAMPLES / "invoices")
    with served(found, tmp_path) as base_url:
        for task in found.tasks:
            answer = (task.spec or {})["answer"]
            others = [
                {**answer, "amount": answer["amount"] + 0.01},
                *(
                    {**answer, "decision": other}
                    for other in ("approve", "mismatch", "reject")
                    if other != answer["decision"]
                ),
            ]
            rewards = []
            for given in (answer, *others):
                async with EpisodeSession.open(base_url) as session:
                    await session.reset(**(task.reset or {}))
                    rewards.append((await session.step(call_tool("submit", given))).reward)
            assert rewards == [1.0, 0.0, 0.0, 0.0]


@needs_bubblewrap
@pytest.mark.parametrize("name", ["invoices", "terminal-files"])
def test_the_tasks_are_what_their_script_makes(name: str) -> None:
    made = runpy.run_path(str(EXAMPLES / name / "make_tasks.py"))["make"]()
    lines = (EXAMPLES / name / "tasks.jsonl").read_text("utf-8").splitlines()
    assert json.loads(json.dumps(made)) == [json.loads(line) for line in lines]


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["invoices", "terminal-files"])
def test_they_are_loaded_with_one_command(people: People, name: str) -> None:
    said: Any = io.StringIO()
    call_command("load_example", name, stdout=said)
    version = EnvironmentVersion.objects.get()
    assert version.tasks.count() >= 45
    assert f"/environments/{version.environment.slug}/" in said.getvalue()
