"""What an author says of a server's resources reaches it, whichever kind was written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.environments.folders import read_folder
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Resources

EXAMPLES = sorted(p.parent for p in Path(__file__).parents[2].glob("examples/*/environment.yaml"))


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_slots_and_servers_are_as_many_as_the_version_says(folder: Path, tmp_path: Path) -> None:
    environment = read_folder(folder)
    spec = KINDS[environment.kind].server(
        name="v1",
        source=environment.source,
        resources=Resources(slots=3, max_servers=4),
        specs=[{**(t.spec or {}), "key": t.key, "prompt": t.prompt} for t in environment.tasks],
        data=tmp_path,
    )
    assert (spec.capacity, spec.max_servers) == (3, 4)
