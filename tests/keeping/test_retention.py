"""Rules of retention: what goes, what stays and why, and how it is kept after all."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from optimizer.models import Comparison, Release, Search, SearchRun
from orchestrator.climbs.models import Rung
from orchestrator.events.models import Event, Stream
from orchestrator.gates.models import Gate, GateRun
from orchestrator.grading.models import GoldenCase
from orchestrator.grading.past import why_not_graded
from orchestrator.jobs.execution import run_attempt
from orchestrator.judging.models import JudgeCall
from orchestrator.keeping.errors import KeepingRefused
from orchestrator.keeping.models import RetentionMark, RetentionRule, RetentionRun
from orchestrator.keeping.retention import services
from orchestrator.keeping.retention.looking import look
from orchestrator.projects.models import AuditEntry, Project
from orchestrator.review.models import Annotation, Correction, ReviewItem
from orchestrator.runs.models import Rollout, Run, TokenRow, VerdictRecord
from orchestrator.runs.transcripts import with_trace, without_trace
from orchestrator.web.trace import build_trace
from tests.base import People
from tests.keeping.filled import Filler
from training.models import Checkpoint, TrainingRun

pytestmark = pytest.mark.django_db
YEAR = 365


@pytest.fixture
def old(people: People) -> Rollout:
    """One rollout of a run a year ago, on which nothing rests, beside rows of every kind."""
    Filler(people.project).fill()
    rollout = Rollout.everything.filter(run__project=people.project).earliest("pk")
    run = rollout.run
    # A second batch of the same, free of what the filler has hung on the first.
    moment = timezone.now() - datetime.timedelta(days=YEAR)
    run.pk, run.stream = None, Stream.objects.create(project=people.project, kind="run")
    run.key = None
    run.state, run.purpose = "completed", "evaluate"
    run.save()
    rollout.pk, rollout.run, rollout.retry_of = None, run, None
    rollout.stream = Stream.objects.create(project=people.project, kind="rollout", last_seq=3)
    rollout.ended_at = moment
    rollout.save()
    Run.objects.filter(pk=run.pk).update(ended_at=moment)
    for seq in (1, 2, 3):
        Event.objects.create(
            stream=rollout.stream, seq=seq, kind="note", payload={"text": "a" * 99}
        )
    TokenRow.objects.create(rollout=rollout, index=0, ids=[1], kinds=[["action", 1]], logprobs=[0])
    VerdictRecord.objects.create(
        rollout=rollout, criterion="right", name="Right", state="scored", value=1.0, reason="r"
    )
    return rollout


def looked(people: People, *, is_dry: bool = False) -> dict[str, Any]:
    run = RetentionRun.objects.create(project=people.project, is_dry=is_dry, state="completed")
    rules = RetentionRule.objects.filter(project=people.project)
    return {each.what: look(each, run).as_json() for each in rules}


def rule(people: People, what: str = "traces", grace_days: int = 0, **more: Any) -> RetentionRule:
    return services.set_rule(
        actor=people.owner,
        project=people.project,
        what=what,
        days=30,
        grace_days=grace_days,
        **more,
    )


def test_a_dry_run_tells_and_changes_nothing(people: People, old: Rollout) -> None:
    rule(people)
    found = looked(people, is_dry=True)["traces"]
    assert (found["due"], found["removed"], found["marked"]) == (1, 0, 0)
    assert found["due_bytes"] > 3 * 99
    assert found["examples"] == [f"rollout {old.pk}"]
    assert Event.objects.filter(stream=old.stream).count() == 3
    assert not RetentionMark.objects.exists()


def test_a_trace_goes_and_its_score_stays(people: People, old: Rollout) -> None:
    rule(people)
    assert looked(people)["traces"]["removed"] == 1
    events = list(Event.objects.filter(stream=old.stream).values_list("seq", "kind", "payload"))
    assert events == [(1, "trace.removed", {"rule_days": 30, "events": 3})]
    old.refresh_from_db()
    old.stream.refresh_from_db()
    assert (old.state, old.score, old.stream.last_seq) == ("scored", 0.5, 1)
    # What is gone is not taken for an episode in which nothing happened.
    assert without_trace([old]) == {old.pk}
    assert not with_trace(Rollout.everything.filter(pk=old.pk)).exists()
    assert why_not_graded(old, is_gone=True).startswith("Its trace has gone")
    (card,) = build_trace(Event.objects.filter(stream=old.stream))[-1].cards
    assert (card.title, card.payload["text"][:13]) == ("Trace removed", "3 events went")
    assert old.verdicts.count() == 1
    assert not old.token_rows.exists()
    assert looked(people)["traces"]["due"] == 0


def test_a_run_goes_with_its_rollouts(people: People, old: Rollout) -> None:
    rule(people, "runs", purposes=["evaluate"])
    before = Run.objects.count()
    found = looked(people)["runs"]
    assert (found["removed"], Run.objects.count()) == (1, before - 1)
    assert not Rollout.everything.filter(pk=old.pk).exists()
    assert not Stream.objects.filter(pk__in=[old.stream_id, old.run.stream_id]).exists()


def test_until_the_grace_is_over_anybody_who_edits_can_keep_it(
    people: People, old: Rollout
) -> None:
    rule(people, grace_days=7)
    found = looked(people)["traces"]
    assert (found["marked"], found["removed"]) == (1, 0)
    assert looked(people)["traces"]["marked"] == 0
    with pytest.raises(PermissionDenied):
        services.keep(actor=people.member, project=people.project)
    assert services.keep(actor=people.editor, project=people.project) == 1
    RetentionMark.objects.update(due_at=timezone.now())
    found = looked(people)["traces"]
    assert (found["due"], found["removed"]) == (0, 0)
    assert found["protected"]["somebody who kept it"] == 1
    assert services.let_go(actor=people.owner, project=people.project) == 1
    assert looked(people)["traces"]["marked"] == 1
    RetentionMark.objects.update(due_at=timezone.now())
    assert looked(people)["traces"]["removed"] == 1


def test_marks_go_with_a_rule_that_spares_their_things(people: People, old: Rollout) -> None:
    changed = rule(people, grace_days=7)
    looked(people)
    assert RetentionMark.objects.count() == 1
    services.set_rule(
        actor=people.owner, project=people.project, what="traces", days=400, grace_days=7
    )
    looked(people)
    assert not RetentionMark.objects.exists()
    services.remove_rule(actor=people.owner, rule=changed)
    with pytest.raises(KeepingRefused, match="no rule"):
        services.start_look(actor=people.owner, project=people.project, is_dry=True)


def first(model: Any) -> Any:
    return model._base_manager.earliest("pk")


def cite(old: Rollout) -> None:
    found = first(Comparison)
    Comparison.objects.filter(pk=found.pk).update(details={"runs": [old.run_id]})


def gate(old: Rollout) -> None:
    GateRun.objects.create(gate=first(Gate), run=old.run, look=9, side="both")


def release(old: Rollout) -> None:
    search = first(Search)
    SearchRun.objects.create(search=search, run=old.run, phase="screen", left_out={})
    Release.objects.filter(pk=first(Release).pk).update(search=search)


def certify(old: Rollout) -> None:
    Release.objects.update(search=None)
    SearchRun.objects.create(search=first(Search), run=old.run, phase="certify", left_out={})


def rung(old: Rollout) -> None:
    Rung.objects.filter(pk=first(Rung).pk).update(test_run=old.run)


def promote(old: Rollout) -> None:
    checkpoint = first(Checkpoint)
    Checkpoint.objects.filter(pk=checkpoint.pk).update(promoted_at=timezone.now())
    TrainingRun.objects.create(
        training_job=checkpoint.training_job, run=old.run, kind="step", step=99, left_out={}
    )


def moved(model: Any, field: str = "rollout") -> Any:
    def hang(old: Rollout) -> None:
        model._base_manager.filter(pk=first(model).pk).update(**{field: old})

    return hang


def open_again(old: Rollout) -> None:
    search = first(Search)
    Release.objects.update(search=None)
    Search.objects.filter(pk=search.pk).update(state="paused")
    SearchRun.objects.create(search=search, run=old.run, phase="screen", left_out={})


HANGS = [
    (cite, "a certificate"),
    (certify, "a certificate"),
    (rung, "a certificate"),
    (gate, "a gate"),
    (release, "a release"),
    (promote, "a promoted checkpoint"),
    (moved(Annotation), "what people wrote or queued for review"),
    (moved(Correction), "what people wrote or queued for review"),
    (moved(ReviewItem), "what people wrote or queued for review"),
    (moved(ReviewItem, "other"), "what people wrote or queued for review"),
    (moved(GoldenCase), "a golden case"),
    (open_again, "work under way"),
]


@pytest.mark.parametrize("what", ["traces", "runs"])
def test_what_results_rest_on_stays(people: People, old: Rollout, what: str) -> None:
    rule(people, what)
    assert looked(people, is_dry=True)[what]["due"] == 1
    for hang, reason in HANGS:
        with transaction.atomic():
            hang(old)
            found = looked(people)[what]
            assert (found["due"], found["removed"]) == (0, 0), reason
            assert reason in found["protected"]
            assert Event.objects.filter(stream=old.stream).count() == 3
            transaction.set_rollback(True)
    assert looked(people)[what]["removed"] == 1


def test_judge_calls_that_a_kept_verdict_cites_stay(people: People, old: Rollout) -> None:
    cited, free = JudgeCall.objects.filter(project=people.project).order_by("pk")
    kept = Annotation.objects.filter(rollout__run__project=people.project).earliest("pk").rollout
    VerdictRecord.objects.filter(rollout=kept).update(detail={"calls": [{"call": cited.pk}]})
    rule(people, "judge_calls")
    assert looked(people)["judge_calls"]["removed"] == 1
    assert list(JudgeCall.objects.filter(project=people.project)) == [cited]
    assert not JudgeCall.objects.filter(pk=free.pk).exists()


def test_rules_are_for_admins_and_name_their_mistakes(people: People) -> None:
    with pytest.raises(PermissionDenied):
        services.set_rule(actor=people.editor, project=people.project, what="traces", days=9)
    for told, asked in (
        ("what is 'audit'", {"what": "audit", "days": 9}),
        ("days is 0", {"what": "traces", "days": 0}),
        ("grace_days is -1", {"what": "traces", "days": 9, "grace_days": -1}),
        ("purposes has 'fun'", {"what": "runs", "days": 9, "purposes": ["fun"]}),
        ("only for traces and runs", {"what": "deliveries", "days": 9, "purposes": ["ci"]}),
    ):
        with pytest.raises(KeepingRefused, match=told):
            services.set_rule(actor=people.owner, project=people.project, **asked)  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_the_daily_round_looks_once_a_day_where_there_is_a_rule(
    people: People, old: Rollout
) -> None:
    Project.objects.create(name="Without a rule")
    rule(people)
    services.ask_daily()
    services.ask_daily()
    (run,) = RetentionRun.objects.all()
    assert (run.project, run.is_dry, run.asked_by) == (people.project, False, None)
    assert run.job is not None
    run_attempt(run.job.pk)
    run.refresh_from_db()
    assert (run.state, run.error, run.found[0]["removed"]) == ("completed", "", 1)
    entry = AuditEntry.objects.get(action="keeping.retain")
    assert entry.changes[0]["label"].startswith("1 traces of rollouts, ")
    services.ask_daily()
    assert RetentionRun.objects.count() == 1
