"""Rollouts in the product's own environment: a real server, a real shell in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.climbs.demo import RUBRIC
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


def run_with(people: People, script: Script, make_model: MakeModel, *, tasks: int = 7) -> Run:
    version = make_environment(people.project, test=tasks)
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
    run = run_with(people, solve, make_model)
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


def test_prose_is_the_environments_zero_and_not_an_error(
    people: People, make_model: MakeModel
) -> None:
    """The shell says what it thinks of prose; no answer in four steps is no right answer."""
    run = run_with(people, explain, make_model, tasks=2)
    assert run.state == RunState.COMPLETED
    for rollout in rollouts(run):
        assert (rollout.state, rollout.score, rollout.reward) == (RolloutState.SCORED, 0.0, 0.0)
        assert rollout.n_steps == 4
        observed = [e.payload for e in events(rollout.stream_id, "observation")]
        assert observed[0]["exit_status"] == 127
        kinds = [s["kind"] for s in observed[0]["segments"]]
        assert "scaffold" in kinds
        verdicts = {v.criterion: v for v in rollout.verdicts.all()}
        assert verdicts["correct"].value == 0.0


def test_an_empty_reply_is_refused_by_the_schema(people: People, make_model: MakeModel) -> None:
    run = run_with(people, lambda asked: "", make_model, tasks=1)
    (rollout,) = rollouts(run)
    assert (rollout.state, rollout.score, rollout.cause) == ("errored", None, "action_rejected")
    assert "is empty or too short" in rollout.message
    assert run.state == RunState.COMPLETED_UNSCORED


def test_what_one_rollout_does_to_its_files_no_other_sees(
    people: People, make_model: MakeModel
) -> None:
    """Every task is solved although each rollout first removes whatever it can."""

    def script(asked: Asked) -> str:
        if asked.messages[-2][0] != "assistant":
            return "rm -rf * /tmp/* ; ls"
        return f"answer: {asked.last.split()[0]}"

    run = run_with(people, script, make_model, tasks=3)
    for rollout in rollouts(run):
        first = events(rollout.stream_id, "observation")[0].payload
        assert [s["text"] for s in first["segments"]] == ["(no output)"]
        verdicts = {v.criterion: v for v in rollout.verdicts.all()}
        # A negative criterion: 1 says that it happened.
        assert verdicts["no-deletion"].value == 1.0
        assert rollout.score == 0.0
