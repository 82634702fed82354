"""A worker is killed while a reflector answers: what was answered is kept, the rest goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from optimizer.models import Budget
from orchestrator.jobs.models import JobState
from orchestrator.jobs.services import sweep
from tests.base import People
from tests.doubles.model_server import Asked, ScriptedModel
from tests.jobs.workers import wait_for_state, workers_in
from tests.proposing.build import ask, cap, edits_of, job_of, make_search, said
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_a_killed_worker_costs_the_request_that_was_on_its_way(
    people: People, tmp_path: Path
) -> None:
    was_killed = threading.Event()

    def script(asked: Asked) -> str:
        """No answer, then silence until the worker is dead, then an answer."""
        if len(model.asked) == 1:
            return "I am not sure."
        if len(model.asked) == 2:
            was_killed.wait(120)
        return said()

    with ScriptedModel(script) as model, workers_in(tmp_path) as workers:
        search = make_search(people.project, model)
        cap(search, "tokens", 1_000_000)
        proposal = ask(search)
        worker = workers.start()

        def is_asked_again() -> bool:
            sweep()
            return len(model.asked) == 2

        wait_until(is_asked_again, limit_s=120, what="the second request")
        worker.kill()
        was_killed.set()
        workers.start()
        wait_for_state(job_of(proposal), JobState.DONE, limit_s=120)
        first, second, third = (asked.last for asked in model.asked)
    proposal.refresh_from_db()
    assert first == proposal.prompt
    assert second == third != first
    assert (proposal.state, len(edits_of(proposal))) == ("answered", 1)
    assert [bool(answer["problem"]) for answer in proposal.answers] == [True, False]
    budget = Budget.objects.get(role="proposer")
    assert (budget.used, budget.reserved) == (proposal.tokens, 0)
