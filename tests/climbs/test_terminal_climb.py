"""The demo's ladder in small, in the real sandbox: the search finds a harness that solves tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from optimizer.store import load_harness
from orchestrator.climbs.models import Phase
from orchestrator.runs import engine
from tests.base import People
from tests.climbs.ladder import rungs, work
from tests.climbs.small import make_climb
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless, make_endpoint
from tests.runs.solver import learn

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


@pytest.mark.slow
def test_examples_turn_talk_into_answers(people: People, make_model: MakeModel) -> None:
    model = make_model(learn)
    climb = make_climb(
        project=people.project,
        actor=people.editor,
        model=make_endpoint(people.project, model.url),
        max_tokens=200,
    )
    work()
    climb.refresh_from_db()
    baseline, harness, _ = rungs(climb)
    # Everything is right: neither way is expected to gain a point, so the climb ends here.
    assert (climb.phase, climb.error) == (Phase.DONE, "")
    assert climb.advice["chosen"] == "stop"
    assert (baseline.score, harness.verdict) == (0.0, "better")
    assert (harness.score, harness.n_errored) == (1.0, 0)
    assert harness.harness is not None
    assert load_harness(harness.harness).demonstrations
    assert_gapless()
