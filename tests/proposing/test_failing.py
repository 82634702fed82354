"""A reflector that fails costs its budget and nothing else, and the proposal says what happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from django.db import connection

from optimizer.models import Budget, Nudge, Proposal
from orchestrator.jobs import lease
from orchestrator.jobs.errors import LeaseLost
from orchestrator.jobs.models import Job
from orchestrator.proposing.calls import MAX_PAUSE_S, retry_after_s
from orchestrator.proposing.names import HANDED_IN
from tests.base import People
from tests.doubles.model_server import Asked, Raw, Reply, ScriptedModel
from tests.proposing.build import (
    GOOD,
    VirtualTime,
    answered,
    ask,
    cap,
    job_of,
    make_rollout,
    make_search,
    said,
    work,
)

pytestmark = pytest.mark.django_db


def replies(*texts: str | Raw | Reply) -> Callable[[Asked], str | Raw | Reply]:
    """One after the other; the last again and again."""
    left = list(texts)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


def budget() -> Budget:
    return Budget.objects.get(role="proposer", unit="tokens")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("I would tell it to be careful.", "no JSON object"),
        (said()[:-30], "cut off inside its JSON object"),
        (Reply(said()[:60], changes={"finish_reason": "length"}), "cut off at 4,000 tokens"),
        ("", "empty"),
        (f"{said()}\n{said({**GOOD, 'content': 'Other.'})}", "several answers that differ"),
        (Raw(200, "<html><body>It works!</body></html>"), "something else than a JSON object"),
        (Raw(200, '{"choices": []}'), "lacks"),
        (Raw(200, "[]"), "something else than a JSON object"),
    ],
)
def test_what_is_no_answer_is_corrected_twice_and_then_told(
    people: People, reply: str | Raw | Reply, problem: str
) -> None:
    with ScriptedModel(replies(reply)) as model:
        search = make_search(people.project, model)
        cap(search, "tokens", 1_000_000)
        proposal = answered(search)
        assert len(model.asked) == 3
        if not isinstance(reply, Raw):
            assert "An earlier reply could not be used" in model.asked[1].last
    assert (proposal.state, proposal.edits) == ("failed", [])
    assert "No usable answer in 3 replies" in proposal.reason
    assert problem in proposal.reason
    assert [problem in answer["problem"] for answer in proposal.answers] == [True] * 3
    assert (budget().used, budget().reserved) == (proposal.tokens, 0)


def test_a_corrected_answer_counts(people: People) -> None:
    with ScriptedModel(replies("Well.", said())) as model:
        proposal = answered(make_search(people.project, model))
    assert (proposal.state, len(proposal.edits), len(proposal.answers)) == ("answered", 1, 2)


def overloaded(time: VirtualTime, seconds: float, **headers: str) -> Callable[[Asked], Any]:
    until = time.now + seconds
    refused = Raw(429, '{"error": {"message": "slow down"}}', headers)
    return lambda asked: refused if time.now < until else said()


def test_an_overloaded_endpoint_is_waited_for(people: People) -> None:
    time = VirtualTime()
    with ScriptedModel(overloaded(time, 60)) as model:
        proposal = work(ask(make_search(people.project, model)), time)
        assert 5 < len(model.asked) < 20
    assert (proposal.state, len(proposal.answers)) == ("answered", 1)
    assert proposal.seconds >= 60


def test_it_waits_as_long_as_it_is_asked_to(people: People) -> None:
    time = VirtualTime()
    with ScriptedModel(overloaded(time, 60, **{"Retry-After": "30"})) as model:
        assert work(ask(make_search(people.project, model)), time).state == "answered"
        assert len(model.asked) == 3


def test_one_that_stays_overloaded_fails_the_proposal(people: People) -> None:
    time = VirtualTime()
    with ScriptedModel(overloaded(time, 10_000)) as model:
        search = make_search(people.project, model)
        cap(search, "tokens", 1_000_000)
        proposal = work(ask(search, patience_s=60), time)
    assert proposal.state == "failed"
    assert "was overloaded for 60 s (HTTP 429, asked" in proposal.reason
    assert (budget().used, budget().reserved) == (0, 0)


def test_a_refused_connection_fails_the_proposal(people: People) -> None:
    proposal = answered(make_search(people.project, base_url="http://127.0.0.1:9"))
    assert proposal.state == "failed"
    assert "could not be reached for 120 s" in proposal.reason


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Raw(401, '{"error": {"message": "bad key"}}'), "(HTTP 401): bad key"),
        (Raw(404, "<html>not here</html>"), "(HTTP 404): <html>not here"),
    ],
)
def test_what_waiting_does_not_help_fails_at_once(people: People, reply: Raw, problem: str) -> None:
    with ScriptedModel(replies(reply)) as model:
        proposal = answered(make_search(people.project, model))
        assert len(model.asked) == 1
    assert proposal.state == "failed"
    assert problem in proposal.reason


def test_a_question_that_is_too_long_is_shortened(people: People) -> None:
    too_long = Raw(400, '{"error": {"message": "no", "code": "context_length_exceeded"}}')
    with ScriptedModel(lambda asked: too_long if len(asked.last) > 7_500 else said()) as model:
        search = make_search(people.project, model)
        long = {"segments": [{"kind": "env_output", "text": "y" * 1_900}]}
        for task in ("train-0", "train-1", "train-2", "train-3"):
            make_rollout(search, task, score=0.0, observation=long)
        Nudge.objects.create(search=search, text="Mind the units.")
        proposal = answered(search, room_chars=24_000, failed=8)
        lengths = [len(asked.last) for asked in model.asked]
    assert proposal.state == "answered"
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] <= 7_500 < lengths[0]
    assert "Mind the units." in proposal.prompt
    assert proposal.request["terms"]["room_chars"] < 24_000


def test_one_that_is_too_long_in_any_case_fails(people: People) -> None:
    too_long = Raw(400, '{"error": {"message": "maximum context length is 12 tokens"}}')
    with ScriptedModel(replies(too_long)) as model:
        proposal = answered(make_search(people.project, model))
        assert len(model.asked) == 4
    assert proposal.state == "failed"
    assert "maximum context length" in proposal.reason


def test_an_address_that_is_none_and_a_model_that_is_gone_are_told(people: People) -> None:
    proposal = answered(make_search(people.project, base_url="ftp://models"))
    assert "is not an http(s) address" in proposal.reason
    proposal = answered(make_search(people.project), model=10**6)
    assert (proposal.state, "is gone" in proposal.reason) == ("failed", True)


def test_an_endpoint_that_counts_nothing_is_not_free(people: People) -> None:
    body = '{"choices": [{"message": {"content": "{\\"edits\\": []}"}}]}'
    with ScriptedModel(replies(Raw(200, body))) as model:
        proposal = answered(make_search(people.project, model))
    assert proposal.state == "answered"
    assert proposal.tokens > len(proposal.prompt) / 5


# --- budget --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "amount"), [("tokens", 3_000), ("micro_usd", 300)])
def test_nothing_is_asked_beyond_the_budget(people: People, unit: str, amount: float) -> None:
    with ScriptedModel(replies(said())) as model:
        search = make_search(people.project, model)
        cap(search, unit, amount)
        proposal = answered(search)
        assert model.asked == []
    assert proposal.state == "failed"
    assert "would exceed the proposer budget" in proposal.reason


def test_a_spent_budget_ends_the_corrections(people: People) -> None:
    with ScriptedModel(replies("no")) as model:
        search = make_search(people.project, model)
        proposal = ask(search)
        cap(search, "tokens", 12_000)
        work(proposal)
        assert 1 <= len(model.asked) < 3
    proposal.refresh_from_db()
    assert "would exceed the proposer budget" in proposal.reason
    assert (budget().used, budget().reserved) == (proposal.tokens, 0)
    assert budget().used <= 12_000


# --- kills ---------------------------------------------------------------------------------------


def killed_at(proposal: Proposal, monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> None:
    """One attempt that ends in the `call`-th call of a function of its module, as by SIGKILL."""
    from orchestrator.proposing import answering

    real, calls = getattr(answering, name), []

    def mortal(*args: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt  # nothing catches it, as nothing catches a kill
        return real(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(answering, name, mortal)
        with pytest.raises(KeyboardInterrupt):
            work(proposal)
    Job.objects.filter(pk=job_of(proposal).pk).update(lease_until=datetime.now(UTC) - timedelta(1))


@pytest.mark.parametrize(("name", "call"), [("prepare", 1), ("read_answer", 2), ("_end", 1)])
def test_a_killed_job_goes_on_without_asking_again(
    people: People, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    with ScriptedModel(replies(said())) as model:
        search = make_search(people.project, model)
        cap(search, "tokens", 1_000_000)
        proposal = ask(search)
        killed_at(proposal, monkeypatch, name, call)
        work(proposal)
        assert len(model.asked) == 1
    proposal.refresh_from_db()
    assert (proposal.state, len(proposal.edits)) == ("answered", 1)
    assert (budget().used, budget().reserved) == (proposal.tokens, 0)


@pytest.mark.django_db(transaction=True)
def test_an_attempt_that_lost_its_lease_writes_nothing(people: People) -> None:
    proposal: Proposal

    def slow(asked: Asked) -> str:
        # While it answers, another worker takes over.
        Job.objects.filter(pk=job_of(proposal).pk).update(attempt=7)
        connection.close()  # of the server's thread
        return said()

    with ScriptedModel(slow) as model:
        search = make_search(people.project, model)
        proposal = ask(search)
        with pytest.raises(LeaseLost):
            work(proposal)
    proposal.refresh_from_db()
    assert (proposal.state, proposal.answers, proposal.tokens) == ("waiting", [], 0)


def test_a_job_that_breaks_ends_its_proposal(people: People) -> None:
    search = make_search(people.project)
    cap(search, "tokens", 1_000_000)
    proposal = ask(search)
    claim = lease.claim(job_of(proposal).pk)
    assert claim is not None
    lease.fail(claim.fence, error="ZeroDivisionError: division by zero")
    proposal.refresh_from_db()
    assert (proposal.state, proposal.reason) == (
        "failed",
        "The proposer broke: ZeroDivisionError: division by zero",
    )


def test_a_question_for_people_waits_without_a_model(people: People) -> None:
    with ScriptedModel(replies(said())) as model:
        proposal = answered(make_search(people.project, model), HANDED_IN)
        assert model.asked == []
    assert proposal.state == "waiting"
    assert "right says 0" in proposal.prompt


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("", 0.0), ("soon", 0.0), ("nan", 0.0)],
)
def test_what_retry_after_asks_for(header: str, seconds: float) -> None:
    assert retry_after_s(header) == seconds


def test_retry_after_may_be_a_date_and_is_capped() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert 0 < retry_after_s(soon) <= 20
    assert retry_after_s("86400") == MAX_PAUSE_S
