"""A run from start to end: every rollout once, logs without gaps, tokens as they were sampled."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orchestrator.jobs.errors import LeaseLost
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs import queries
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState
from orchestrator.runs.services import cancel_run, start_run
from tests.base import People
from tests.doubles.model_server import LOGPROB, Asked, decode, encode, render
from tests.runs.conftest import MakeModel
from tests.runs.drive import (
    FINISH,
    act,
    assert_gapless,
    attempt,
    events,
    execute,
    good,
    has_acted,
    kinds_of,
    make_endpoint,
    make_harness,
    make_run,
    make_version,
    number_of,
    rollouts,
    wait_asked,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_executes_every_rollout(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    version = make_version(people.project, fault_url, tasks=4)
    run = execute(
        make_run(people.project, version=version, model_url=make_model().url, replicates=2)
    )
    assert run.state == RunState.COMPLETED
    assert run.error == ""
    tally = queries.tally(run.pk)
    assert (tally.planned, tally.scored, tally.errored, tally.mean) == (8, 8, 0, 1.0)
    assert {(r.task.key, r.replicate) for r in rollouts(run)} == {
        (f"t{i}", replicate) for i in range(4) for replicate in (0, 1)
    }
    for rollout in rollouts(run):
        assert (rollout.state, rollout.score, rollout.reward) == (RolloutState.SCORED, 1.0, 1.0)
        assert (rollout.attempt, rollout.n_steps) == (1, 2)
        assert rollout.tokens_in > rollout.tokens_out > 0
        assert kinds_of(rollout) == [
            "rollout.started",
            "told",
            *("action", "observation") * 2,
            "verdict",
            "rollout.ended",
        ]
        assert [v.value for v in rollout.verdicts.all()] == [1.0]
    assert_gapless()


def test_the_run_tells_its_progress_on_its_own_stream(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    told = events(run.stream_id)
    assert told[0].kind == "run.started"
    assert told[-1].kind == "run.ended"
    assert told[-1].payload == {"state": "completed", "error": ""}
    ended = [event.payload for event in told if event.kind == "rollout"]
    assert sorted(row["id"] for row in ended) == [r.pk for r in rollouts(run)]
    assert all(row["state"] == "scored" and row["score"] == 1.0 for row in ended)
    scored = [event.payload["scored"] for event in told if event.kind == "tally"]
    assert scored == sorted(scored)
    assert scored[-1] == 3


def test_tokens_are_stored_as_they_were_sampled(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    """Each prompt is the stored row up to there, and every token has its kind."""
    model = make_model()
    version = make_version(people.project, fault_url, tasks=1)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    (rollout,) = rollouts(run)
    (row,) = rollout.token_rows.all()
    kinds = [kind for kind, count in row.kinds for _ in range(count)]
    assert len(kinds) == len(row.ids)
    assert len(row.logprobs) == kinds.count("action")
    assert set(row.logprobs) == {LOGPROB}
    assert row.weight_version == rollout.weight_version == "scripted"
    for asked in model.asked:
        assert row.ids[: len(asked.ids)] == list(asked.ids)

    def text_of(kind: str) -> str:
        return decode([i for i, k in zip(row.ids, kinds, strict=True) if k == kind])

    assert text_of("action") == f"{act(text='look')}<|end|>{FINISH}<|end|>"
    shown = json.loads(text_of("env_output"))
    assert shown["text"] == "look"
    # What precedes the first action is the harness and the task, and never trained on.
    started = events(rollout.stream_id, "rollout.started")[0].payload
    first = len(model.asked[0].ids)
    assert kinds[:first] == ["context"] * first
    system = render(started["messages"]).removesuffix("<|begin|>assistant\n")
    told = events(rollout.stream_id, "told")[0].payload["text"]
    assert "- reward (" in told
    assert decode(row.ids[:first]).replace(f"\n\n{told}", "").startswith(system)
    assert text_of("scaffold") == "\n<|begin|>user\n<|end|>\n<|begin|>assistant\n"


def test_an_action_that_stops_at_a_newline_closes_its_turn_in_the_bridge(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(lambda asked: good(asked) + "\nand more")
    version = make_version(people.project, fault_url, tasks=1)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    (rollout,) = rollouts(run)
    assert rollout.state == RolloutState.SCORED
    (row,) = rollout.token_rows.all()
    newline_and_end = encode("\n<|end|>\n<|begin|>user\n")
    assert decode(newline_and_end) in decode(row.ids)


def test_refused_actions_are_warnings_that_nothing_is_trained_on(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    def script(asked: Asked) -> str:
        return FINISH if has_acted(asked) else "I would like to help."

    version = make_version(people.project, fault_url, tasks=1)
    run = execute(make_run(people.project, version=version, model_url=make_model(script).url))
    (rollout,) = rollouts(run)
    assert (rollout.state, rollout.score) == (RolloutState.SCORED, 1.0)
    (row,) = rollout.token_rows.all()
    kinds = {kind for kind, _ in row.kinds}
    assert kinds == {"context", "action", "warning", "scaffold"}
    (refused,) = [e for e in events(rollout.stream_id, "observation") if e.payload.get("refused")]
    assert "not a JSON object" in refused.payload["segments"][0]["text"]


def test_another_endpoint_runs_as_text_without_tokens(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model()
    version = make_version(people.project, fault_url)
    endpoint = make_endpoint(
        people.project,
        model.url,
        kind="openai",
        price_in_usd_per_mtok=1.0,
        price_out_usd_per_mtok=2.0,
    )
    run = execute(make_run(people.project, version=version, model=endpoint))
    assert queries.tally(run.pk).scored == 3
    for rollout in rollouts(run):
        assert not rollout.token_rows.exists()
        cost = (rollout.tokens_in * 1.0 + rollout.tokens_out * 2.0) / 1e6
        assert rollout.cost_usd == pytest.approx(cost)
        assert rollout.cost_usd > 0


def test_seeds_depend_on_run_task_and_replicate_alone(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9", tasks=2)
    harness = make_harness(people.project)
    first = make_run(people.project, version=version, harness=harness, replicates=2)
    again = make_run(people.project, version=version, harness=harness, replicates=2)
    other = make_run(people.project, version=version, harness=harness, replicates=2, seed=8)
    seeds = [[r.seed for r in rollouts(run)] for run in (first, again, other)]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0] + seeds[2])) == 8


# --- interruptions ------------------------------------------------------------------------------


def test_a_stopped_worker_leaves_facts_and_the_next_attempts_only_what_is_open(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    gate = threading.Event()

    def script(asked: Asked) -> str:
        if number_of(asked) >= 2:
            gate.wait(10)
        return FINISH

    model = make_model(script)
    version = make_version(people.project, fault_url, tasks=5)
    run = make_run(people.project, version=version, model_url=model.url, concurrency=3)
    with attempt(run) as first:
        wait_until(lambda: ended(run) == 2, limit_s=60, what="two rollouts")
        wait_asked(model, 5)
        first.stop()
    gate.set()
    states = [r.state for r in rollouts(run)]
    assert states.count(RolloutState.SCORED) == 2
    assert states.count(RolloutState.RUNNING) == 3
    before = {r.pk: (r.ended_at, r.stream.last_seq) for r in rollouts(run) if r.ended_at}

    execute(run)
    assert run.state == RunState.COMPLETED
    for rollout in rollouts(run):
        kinds = kinds_of(rollout)
        if rollout.pk in before:
            assert (rollout.ended_at, rollout.stream.last_seq) == before[rollout.pk]
            assert (rollout.attempt, kinds.count("rollout.restarted")) == (1, 0)
        else:
            assert (rollout.attempt, kinds.count("rollout.restarted")) == (2, 1)
        assert kinds.count("rollout.ended") == 1
        assert rollout.token_rows.count() == 1
    assert [e.kind for e in events(run.stream_id)].count("run.started") == 1
    assert_gapless()


def test_a_worker_that_lost_its_lease_writes_nothing(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    gate = threading.Event()

    def script(asked: Asked) -> str:
        if len(model.asked) <= 2:
            gate.wait(10)
        return FINISH

    model = make_model(script)
    version = make_version(people.project, fault_url, tasks=2)
    run = make_run(people.project, version=version, model_url=model.url)
    with attempt(run) as zombie:
        wait_asked(model, 2)
        Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        execute(run)  # a second worker takes over and ends the run
        assert run.state == RunState.COMPLETED
        lengths = [r.stream.last_seq for r in rollouts(run)]
        gate.set()
        zombie.join()
        assert isinstance(zombie.errors[0], LeaseLost)
    assert [r.stream.last_seq for r in rollouts(run)] == lengths
    assert [r.attempt for r in rollouts(run)] == [2, 2]
    assert_gapless()


def test_an_ended_run_is_left_alone(people: People, fault_url: str, make_model: MakeModel) -> None:
    model = make_model()
    version = make_version(people.project, fault_url, tasks=1)
    run = execute(make_run(people.project, version=version, model_url=model.url))
    run.refresh_from_db()
    n_asked, last = len(model.asked), run.stream.last_seq
    Job.objects.update(state=JobState.QUEUED)
    execute(run)
    run.stream.refresh_from_db()
    assert (len(model.asked), run.stream.last_seq) == (n_asked, last)


# --- cancelling ---------------------------------------------------------------------------------


def test_cancelling_a_running_run_keeps_what_has_a_score(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    gate = threading.Event()

    def script(asked: Asked) -> str:
        if number_of(asked) > 0:
            gate.wait(10)
        return FINISH

    model = make_model(script)
    version = make_version(people.project, fault_url, tasks=3)
    run = make_run(people.project, version=version, model_url=model.url)
    worker = threading.Thread(target=execute, args=(run,))
    worker.start()
    wait_until(lambda: ended(run) == 1, limit_s=60, what="the first rollout")
    wait_asked(model, 3)
    cancel_run(actor=people.editor, run=Run.objects.get(pk=run.pk))
    worker.join(timeout=10)
    gate.set()
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert [r.state for r in rollouts(run)] == ["scored", "cancelled", "cancelled"]
    assert [r.score for r in rollouts(run)] == [1.0, None, None]
    assert_told(run)


def test_cancelling_a_queued_run_ends_it_at_once(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9")
    run = start_run(run=make_run(people.project, version=version))
    cancel_run(actor=people.editor, run=run)
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert {r.state for r in rollouts(run)} == {RolloutState.CANCELLED}
    assert_told(run)
    cancel_run(actor=people.editor, run=run)  # changes nothing
    assert [e.kind for e in events(run.stream_id)].count("run.ended") == 1


def test_a_run_that_was_never_started_can_be_cancelled(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9")
    run = make_run(people.project, version=version)
    cancel_run(actor=people.owner, run=run)
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED


def test_only_editors_cancel(people: People) -> None:
    run = make_run(people.project, version=make_version(people.project, "http://127.0.0.1:9"))
    with pytest.raises(PermissionDenied):
        cancel_run(actor=people.member, run=run)
    with pytest.raises(Http404):
        cancel_run(actor=people.stranger, run=run)
    run.refresh_from_db()
    assert run.state == RunState.QUEUED


def assert_told(run: Run) -> None:
    """Pages that watch the run or a rollout of it hear the end of every rollout."""
    for rollout in rollouts(run):
        ended = events(rollout.stream_id, "rollout.ended")
        assert [e.payload["state"] for e in ended] == [rollout.state]
    rows = {e.payload["id"]: e.payload["state"] for e in events(run.stream_id, "rollout")}
    assert rows == {r.pk: r.state for r in rollouts(run)}
    assert_gapless()


def ended(run: Run) -> int:
    return Rollout.objects.filter(run=run, state=RolloutState.SCORED).count()


# --- asking twice -------------------------------------------------------------------------------


def test_asking_under_a_key_twice_makes_one_run(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9")
    run = make_run(people.project, version=version, key="once")
    assert make_run(people.project, version=version, key="once").pk == run.pk
    assert Rollout.objects.count() == 3
    assert start_run(run=run).job_id == start_run(run=run).job_id
    assert Job.objects.count() == 1


def test_a_run_needs_a_rollout(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9", tasks=0)
    with pytest.raises(ValueError, match="at least one rollout"):
        make_run(people.project, version=version)


# --- reading ------------------------------------------------------------------------------------


def test_the_list_of_runs_costs_the_same_for_any_number(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9")
    harness = make_harness(people.project)

    def cost(n: int) -> int:
        for _ in range(n):
            make_run(people.project, version=version, harness=harness)
        with CaptureQueriesContext(connection) as captured:
            rows = queries.list_runs(people.project.pk)
            assert all(row.run.model.name and row.run.rubric_version.rubric.name for row in rows)
            assert all(row.tally.planned == 3 for row in rows)
        return len(captured)

    assert cost(1) == cost(6) == 2


def test_pages_of_runs_follow_one_another(people: People) -> None:
    version = make_version(people.project, "http://127.0.0.1:9")
    harness = make_harness(people.project)
    made = [make_run(people.project, version=version, harness=harness).pk for _ in range(5)]
    first = [row.run.pk for row in queries.list_runs(people.project.pk, limit=2)]
    rest = queries.list_runs(people.project.pk, limit=9, before_id=first[-1])
    assert first + [row.run.pk for row in rest] == made[::-1]


def test_a_rollouts_detail_costs_few_queries_and_knows_its_neighbours(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    first, middle, last = rollouts(run)
    with CaptureQueriesContext(connection) as captured:
        detail = queries.rollout_detail(middle.pk)
        assert detail.rollout.run.environment_version.environment.name == "Env"
    assert len(captured) <= 5
    assert (detail.previous_id, detail.next_id) == (first.pk, last.pk)
    assert detail.token_counts["action"] == middle.tokens_out
    assert [verdict.state for verdict in detail.verdicts] == ["scored"]
    assert queries.rollout_detail(last.pk).next_id is None


def test_a_run_keeps_its_conditions(people: People, fault_url: str, make_model: MakeModel) -> None:
    """How it was isolated, and that nobody has checked its environment."""
    version = make_version(people.project, fault_url, tasks=1)
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert (run.isolation["mode"], run.isolation["is_weak"]) == ("remote", False)
    assert [warning["code"] for warning in run.warnings] == ["check.never"]


def test_the_agent_is_told_the_environments_description_before_the_task(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model()
    version = make_version(people.project, fault_url, tasks=1)
    version.description = "You are in a house of mirrors.\n"
    version.save()
    execute(make_run(people.project, version=version, model_url=model.url))
    prompt = next(text for role, text in model.asked[0].messages if "Task 0." in text)
    assert prompt.startswith("You are in a house of mirrors.\n\nTask 0.")
