"""The program over a real database: sound after real work, and it sees what was broken by hand."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from optimizer.models import Search, SearchState
from orchestrator.events.models import Event, Stream
from orchestrator.invariants import verification
from orchestrator.invariants.verification import INVARIANTS, verify
from orchestrator.jobs.models import Job
from orchestrator.runs.models import Rollout, Run, RunState, VerdictRecord
from orchestrator.searches.services import cancel_search, resume_search
from orchestrator.searches.telling import tell_state
from tests.base import People
from tests.runs.conftest import MakeModel
from tests.runs.drive import execute, make_run, make_version
from tests.searches.playing import play, start

pytestmark = pytest.mark.django_db(transaction=True)


def broken() -> set[str]:
    return {finding.invariant for finding in verify(at_rest=True).findings}


def test_it_finds_nothing_after_work_and_every_break(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert run.state == RunState.COMPLETED
    report = verify(at_rest=True)
    assert report.findings == []
    assert (report.looked_at["rollouts"], report.looked_at["ended runs"]) == (3, 1)

    rollout = Rollout.objects.select_related("stream").earliest("id")
    with undone():
        Event.objects.filter(stream_id=rollout.stream_id, seq=2).delete()
        assert broken() == {"log.whole"}
    with undone():
        Event.objects.filter(stream_id=rollout.stream_id, kind="rollout.ended").delete()
        Stream.objects.filter(pk=rollout.stream_id).update(last_seq=rollout.stream.last_seq - 1)
        assert broken() == {"rollout.ended"}
    with undone():
        Rollout.objects.filter(pk=rollout.pk).update(score=0.25)
        assert broken() == {"rollout.score", "run.tally"}
    with undone():
        VerdictRecord.objects.filter(rollout=rollout).delete()
        assert broken() == {"rollout.verdicts"}
    with undone():
        Rollout.objects.filter(pk=rollout.pk).update(cost_usd=9.0)
        assert broken() == {"run.tally"}
    with undone():
        Rollout.objects.filter(pk=rollout.pk).update(is_replaced=True)
        assert broken() == {"rollout.retry", "run.tally"}
    with undone():
        Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING)
        assert broken() == {"owner.ended", "owner.job"}
    with undone():
        Job.objects.update(state="running", ended_at=None)
        assert broken() == {"job.rest"}


def test_a_failed_search_that_goes_on_is_sound(people: People) -> None:
    search = start(people)
    for _ in range(2):
        play(lambda harness, rollout: None)  # the model is away
        search.refresh_from_db()
        assert search.state == SearchState.FAILED
        assert "owner.ended" not in broken()
        resume_search(actor=people.editor, search=search)
        assert "owner.ended" not in broken()
    with undone():
        Search.objects.update(state=SearchState.FAILED)
        assert "owner.ended" in broken()
    cancel_search(actor=people.editor, search=search)
    assert "owner.ended" not in broken()
    with undone(), transaction.atomic():
        tell_state(search, SearchState.RUNNING)
        assert "owner.ended" in broken()


class undone:
    """A block whose changes are rolled back."""

    def __enter__(self) -> None:
        self._atomic = transaction.atomic()
        self._atomic.__enter__()

    def __exit__(self, *exc: object) -> None:
        transaction.set_rollback(exc[0] is None)
        self._atomic.__exit__(*exc)  # type: ignore[arg-type]


def test_the_command_says_what_it_found(monkeypatch: pytest.MonkeyPatch, people: People) -> None:
    out = StringIO()
    call_command("verify", stdout=out)
    assert "All holds." in out.getvalue()

    stream = Stream.objects.create(project=people.project, kind="run", last_seq=3)
    out = StringIO()
    with pytest.raises(CommandError, match=r"1 thing does not hold"):
        call_command("verify", stdout=out)
    assert f"log.whole: run stream {stream.pk}" in out.getvalue()
    assert INVARIANTS["log.whole"] in out.getvalue()

    out = StringIO()
    with pytest.raises(CommandError):
        call_command("verify", "--json", stdout=out)
    told = json.loads(out.getvalue())
    assert [finding["invariant"] for finding in told["findings"]] == ["log.whole"]

    monkeypatch.setattr(verification, "MOST", 2)
    Stream.objects.bulk_create(
        Stream(project=people.project, kind="run", last_seq=n) for n in range(1, 9)
    )
    with pytest.raises(CommandError, match=r"2 things do not hold, or more"):
        call_command("verify", stdout=out)
