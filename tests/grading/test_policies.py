"""Barring a criterion: who may, what is kept of it, and what nobody learns from afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client
from django.urls import reverse

from optimizer.engines.contract import SEED
from optimizer.models import Candidate, SearchRun
from orchestrator.climbs.asking import ask_for_run
from orchestrator.climbs.learning import left_out_of_search
from orchestrator.climbs.models import Climb, ClimbRun, Phase, Rung, RungKind
from orchestrator.climbs.rows import rows_of_run
from orchestrator.events.models import Event
from orchestrator.grading.errors import PolicyRefused
from orchestrator.grading.models import CriterionPolicyEntry
from orchestrator.grading.policies import (
    allow_criterion,
    bar_criterion,
    bar_of,
    barred,
    rewards,
    set_bar,
)
from orchestrator.jobs import lease
from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job
from orchestrator.runs.models import Purpose, Rollout, Run, TokenRow, VerdictRecord
from orchestrator.runs.services import PlannedRollout
from orchestrator.searches.rows import rows_of
from rubrics.models import Rubric, RubricVersion
from tests.base import People
from tests.climbs.ladder import make_ladder
from tests.web.build import (
    make_climb,
    make_environment,
    make_rollout,
    make_run,
    make_training_job,
    tasks_of,
)

pytestmark = pytest.mark.django_db

SPEC = {
    "criteria": [
        {"id": "right", "kind": "environment_reward", "weight": 3},
        {"id": "tone", "kind": "exact", "name": "Tone", "weight": 1},
    ]
}


@pytest.fixture
def rubric(people: People) -> Rubric:
    rubric = Rubric.objects.create(project=people.project, name="r")
    RubricVersion.objects.create(rubric=rubric, number=1, spec=SPEC, sha256="ab" * 32)
    return rubric


def graded(rubric: Rubric, *values: tuple[float | None, float | None], **fields: Any) -> Run:
    """A run of rollouts with verdicts (right, tone); None is errored."""
    project = rubric.project
    version = rubric.versions.get()
    run = make_run(
        project,
        rubric_version=version,
        environment_version=make_environment(project, tasks=len(values) or 1),
        **fields,
    )
    for task, (right, tone) in zip(tasks_of(run, "train"), values, strict=False):
        score = None if right is None or tone is None else (3 * right + tone) / 4
        extra: dict[str, Any] = {"state": "scored", "score": score}
        if score is None:
            extra = {"state": "errored", "message": "grading", "cause": "grading"}
        rollout = make_rollout(run, task, **extra)
        for criterion, value in (("right", right), ("tone", tone)):
            VerdictRecord.objects.create(
                rollout=rollout,
                criterion=criterion,
                name=criterion,
                state="errored" if value is None else "scored",
                value=value,
                reason="because",
            )
    return run


def test_an_editor_bars_with_a_reason_and_everything_is_kept(
    people: People, rubric: Rubric
) -> None:
    bar_criterion(actor=people.editor, rubric=rubric, criterion="tone", reason=" κ  0.2 ")
    assert barred(rubric.pk) == {"tone": "κ 0.2"}
    allow_criterion(actor=people.owner, rubric=rubric, criterion="tone", reason="better judge")
    assert barred(rubric.pk) == {}
    kept = [(e.is_barred, e.reason, e.user) for e in CriterionPolicyEntry.objects.all()]
    assert kept == [(False, "better judge", people.owner), (True, "κ 0.2", people.editor)]


def test_who_may_not_and_what_is_refused(people: People, rubric: Rubric) -> None:
    with pytest.raises(PermissionDenied):
        bar_criterion(actor=people.member, rubric=rubric, criterion="tone", reason="x")
    with pytest.raises(Http404):
        bar_criterion(actor=people.stranger, rubric=rubric, criterion="tone", reason="x")
    with pytest.raises(PolicyRefused, match="Say why"):
        bar_criterion(actor=people.editor, rubric=rubric, criterion="tone", reason="  ")
    with pytest.raises(PolicyRefused, match="No version"):
        bar_criterion(actor=people.editor, rubric=rubric, criterion="nobody", reason="x")
    assert not CriterionPolicyEntry.objects.exists()


def test_the_bar_is_the_projects_and_has_a_default(people: People) -> None:
    assert (bar_of(people.project.pk).kappa, bar_of(people.project.pk).min_labels) == (0.6, 30)
    set_bar(actor=people.editor, project=people.project, kappa=0.75, min_labels=40)
    set_bar(actor=people.editor, project=people.project, kappa=0.7, min_labels=40)
    assert bar_of(people.project.pk).kappa == 0.7
    for kappa, least in ((1.2, 30), (float("nan"), 30), (0.5, 1)):
        with pytest.raises(PolicyRefused):
            set_bar(actor=people.editor, project=people.project, kappa=kappa, min_labels=least)
    with pytest.raises(PermissionDenied):
        set_bar(actor=people.member, project=people.project, kappa=0.1, min_labels=2)


def test_a_reward_is_the_score_without_barred_criteria(people: People, rubric: Rubric) -> None:
    run = graded(rubric, (1.0, 0.0), (0.5, 1.0), (None, 1.0), (1.0, None))
    rollouts = list(Rollout.objects.select_related("run__rubric_version").filter(run=run))
    as_it_is = rewards(rollouts, {})
    assert list(as_it_is.values()) == [0.75, 0.625, None, None]
    without = rewards(rollouts, {"tone": "κ 0.2"})
    # The last one has a reward now: what errored is not asked any more.
    assert list(without.values()) == [1.0, 0.5, None, 1.0]
    assert rewards(rollouts, {"of another rubric": ""}) == as_it_is


def test_a_rollout_that_was_never_graded_has_no_reward(people: People, rubric: Rubric) -> None:
    run = graded(rubric)
    rollout = make_rollout(run, tasks_of(run)[0], state="errored", message="it broke")
    assert rewards([rollout], {"tone": ""}) == {rollout.pk: None}


def test_training_rows_carry_that_reward(people: People, rubric: Rubric) -> None:
    run = graded(rubric, (1.0, 0.0), (None, 1.0))
    climb = make_ladder(people)
    ClimbRun.objects.create(
        climb=climb, run=run, rung_index=2, phase=Phase.TRAIN, left_out={"tone": "κ 0.2"}
    )
    for rollout in run.rollouts.all():
        TokenRow.objects.create(
            rollout=rollout,
            index=0,
            ids=[1, 2],
            kinds=[["context", 1], ["action", 1]],
            logprobs=[-0.1],
            weight_version=run.model.model,
        )
    rows = rows_of_run(run, weight_version="v1")
    assert [(row["reward"], row["status"]) for row in rows] == [
        (1.0, "ok"),
        (None, "infrastructure"),
    ]


def test_where_nothing_is_left_the_rollout_teaches_without_a_reward(
    people: People, rubric: Rubric
) -> None:
    run = graded(rubric, (1.0, 0.0))
    ClimbRun.objects.create(
        climb=make_ladder(people),
        run=run,
        rung_index=2,
        phase=Phase.TRAIN,
        left_out={"tone": "", "right": ""},
    )
    TokenRow.objects.create(
        rollout=run.rollouts.get(),
        index=0,
        ids=[1],
        kinds=[["action", 1]],
        logprobs=[-0.1],
        weight_version=run.model.model,
    )
    (row,) = rows_of_run(run, weight_version="v1")
    assert (row["reward"], row["status"]) == (None, "failed")


@pytest.fixture
def climb(people: People) -> Climb:
    climb = make_ladder(people)
    Rung.objects.get_or_create(climb=climb, index=0, defaults={"kind": RungKind.BASELINE})
    return climb


def asked(climb: Climb, key: str, purpose: Purpose, phase: Phase, fence: Fence) -> ClimbRun:
    Climb.objects.filter(pk=climb.pk).update(phase=phase)
    climb.refresh_from_db()
    task = climb.environment_version.tasks.filter(split="train").first()
    assert task is not None
    run = ask_for_run(
        climb=climb,
        rung=climb.rungs.all()[0],
        key=key,
        label=key,
        purpose=purpose,
        plan=[PlannedRollout(climb.seed_harness_id, task)],
        seed_parts=(key,),
        fence=fence,
        queue_job=False,
    )
    return ClimbRun.objects.get(run=run)


def test_a_search_keeps_what_it_began_with_and_training_takes_what_holds(
    people: People, climb: Climb
) -> None:
    rubric = climb.rubric_version.rubric
    criterion = climb.rubric_version.spec["criteria"][0]["id"]
    job = Job.objects.filter(kind="climbs.advance").latest("id")
    claimed = lease.claim(job.pk)
    assert claimed is not None
    fence = claimed.fence
    assert asked(climb, "base", Purpose.BASELINE, Phase.BASELINE, fence).left_out == {}
    bar_criterion(actor=people.editor, rubric=rubric, criterion=criterion, reason="κ 0.1")
    first = asked(climb, "evidence", Purpose.OPTIMISE, Phase.SEARCH, fence)
    assert first.left_out == {criterion: "κ 0.1"}
    allow_criterion(actor=people.editor, rubric=rubric, criterion=criterion, reason="was wrong")
    assert asked(climb, "s-1", Purpose.CERTIFY, Phase.SEARCH, fence).left_out == first.left_out
    assert left_out_of_search(climb) == first.left_out
    assert asked(climb, "step-1", Purpose.TRAIN, Phase.TRAIN, fence).left_out == {}
    told = [
        e.payload["text"]
        for e in Event.objects.filter(stream_id=climb.stream_id, kind="decision").order_by("seq")
        if "barred" in e.payload["text"]
    ]
    assert len(told) == 2
    assert "κ 0.1" in told[0]
    assert "count again" in told[1]


def test_the_training_page_says_what_is_no_reward(people: People) -> None:
    climb = make_climb(people.project, training_job=make_training_job(people.project))
    rubric = climb.rubric_version.rubric
    client = Client()
    client.force_login(people.member)
    url = reverse("web:training_job", args=[people.project.pk, climb.training_job_id])

    def page() -> str:
        return client.get(url).content.decode()

    assert "Not every criterion is a reward" not in page()
    bar_criterion(actor=people.editor, rubric=rubric, criterion="correct", reason="κ <b>0.1</b>")
    assert "The answer is right is barred: κ &lt;b&gt;0.1" in page()
    for left_out in ({}, {"correct": "κ 0.1"}):
        run = make_run(people.project, purpose="train", rubric_version=climb.rubric_version)
        ClimbRun.objects.create(
            climb=climb, run=run, rung_index=2, phase=Phase.TRAIN, left_out=left_out
        )
    assert "was barred in 1 of 2 steps: κ 0.1. The reward was the score without it." in page()
    allow_criterion(actor=people.editor, rubric=rubric, criterion="correct", reason="fine")
    assert "It is allowed again since." in page()


def test_a_search_ranks_and_guards_without_what_is_barred(people: People, rubric: Rubric) -> None:
    climb = make_climb(people.project)
    assert climb.search is not None
    run = graded(rubric, (1.0, 0.0), (0.0, 1.0))
    harness = run.rollouts.all()[0].harness
    Candidate.objects.create(search=climb.search, harness=harness, key=SEED.key, edits=[])
    asked = SearchRun.objects.create(search=climb.search, run=run, phase="screen")
    assert [row.score for row in rows_of(climb.search)] == [0.75, 0.25]
    asked.left_out = {"tone": "κ 0.2"}
    asked.save()
    rows = rows_of(climb.search)
    assert [row.score for row in rows] == [1.0, 0.0]
    assert [row.criteria for row in rows] == [{"right": 1.0}, {"right": 0.0}]
