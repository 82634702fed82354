"""Rollouts in the product's own environment: a real server, a real shell in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.climbs.demo import RUBRIC
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.runs import engine, queries
from orchestrator.runs.models import RolloutState, Run, RunState
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.climbs.small import make_environment
from tests.doubles.model_server import Asked, Script, decode
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless, events, execute, make_run, rollouts
from tests.runs.solver import explain, skill, solve

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def run_with(
    people: People, script: Script, make_model: MakeModel, *, version: EnvironmentVersion
) -> Run:
    version.tasks.exclude(split="test").delete()
    rubric = Rubric.objects.create(project=people.project, name="demo")
    return execute(
        make_run(
            people.project,
            version=version,
            model_url=make_model(script).url,
            rubric_version=create_rubric_version(rubric=rubric, spec=RUBRIC),
        )
    )


def test_a_model_that_knows_the_commands_solves_every_family(
    people: People, make_model: MakeModel
) -> None:
    """And each kind of text in its stored tokens is what it says it is."""
    version = make_environment(people.project, test=7)
    run = run_with(people, solve, make_model, version=version)
    assert (run.state, run.error) == (RunState.COMPLETED, "")
    assert queries.tally(run.pk).mean == 1.0
    assert len({r.task.family for r in rollouts(run)}) == 7
    for rollout in rollouts(run):
        known = skill(rollout.task.prompt)
        assert known is not None
        (row,) = rollout.token_rows.all()
        kinds = [kind for kind, count in row.kinds for _ in range(count)]

        def said(kind: str, ids: list[int] = row.ids, kinds: list[str] = kinds) -> str:
            return decode([i for i, k in zip(ids, kinds, strict=True) if k == kind])

        output = said("env_output")
        assert said("action") == f"{known[0]}<|end|>answer: {known[1](output)}<|end|>"
        assert rollout.answer == known[1](output)
        assert rollout.task.prompt in said("context")
        assert output not in said("scaffold")
        (command, _) = [e.payload for e in events(rollout.stream_id, "observation")]
        assert command["exit_status"] == 0
    assert_gapless()


def test_prose_empty_replies_and_vandalism_side_by_side(
    people: People, make_model: MakeModel
) -> None:
    """One server, three agents, each judged by what it did itself."""

    def script(asked: Asked) -> str:
        number = next(i for i, task in enumerate(tasks) if told(asked, task))
        return [explain, lambda _: "", vandalise][number](asked)

    tasks: list[str] = []
    version = make_environment(people.project, test=3)
    tasks += version.tasks.filter(split="test").order_by("key").values_list("prompt", flat=True)
    assert len(set(tasks)) == 3
    run = run_with(people, script, make_model, version=version)
    talker, silent, vandal = rollouts(run)
    assert run.state == RunState.COMPLETED_UNSCORED  # two of three have a score

    # No answer in four steps is no right answer: the environment's own zero, and no error.
    assert (talker.state, talker.score, talker.reward) == (RolloutState.SCORED, 0.0, 0.0)
    assert talker.n_steps == 4
    observed = [e.payload for e in events(talker.stream_id, "observation")]
    assert observed[0]["exit_status"] == 127
    assert "scaffold" in [s["kind"] for s in observed[0]["segments"]]

    assert (silent.state, silent.score, silent.cause) == ("errored", None, "action_rejected")
    assert "is empty or too short" in silent.message

    # Its files are gone, a negative criterion says so, and nobody else noticed.
    first = events(vandal.stream_id, "observation")[0].payload
    assert [s["text"] for s in first["segments"]] == ["(no output)"]
    verdicts = {v.criterion: v.value for v in vandal.verdicts.all()}
    assert (verdicts["no-deletion"], vandal.score) == (1.0, 0.0)
    assert_gapless()


def vandalise(asked: Asked) -> str:
    has_acted = asked.messages[-2][0] == "assistant"
    return "answer: nothing" if has_acted else "rm -rf * /tmp/* ; ls"


def told(asked: Asked, task: str) -> bool:
    return any(content == task for _, content in asked.messages)
