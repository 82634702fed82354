"""Filters on rows: what the database answers is what each comparison says of each row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import QuerySet

from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import Project
from orchestrator.runs.filtering.compiling import condition
from orchestrator.runs.filtering.fields import ROLLOUTS, RUNS
from orchestrator.runs.filtering.grammar import FilterError, parse
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from orchestrator.runs.queries import with_sums
from orchestrator.runs.rollout_list import rollouts_matching
from tests.base import make_project
from tests.web.build import make_harness, make_rollout, make_run, observation, tasks_of

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def rows(project: Project) -> dict[str, Rollout]:
    """Four rollouts that differ in everything that can be asked for."""
    run = make_run(
        project, label="first", sampling={"temperature": 0.7, "stop": "END", "greedy": False}
    )
    other = make_run(project, label="second", purpose="ci", sampling={"temperature": "hot"})
    train, select, test = (tasks_of(run, split)[0] for split in ("train", "select", "test"))
    h = make_harness(project)
    made = {
        "good": make_rollout(
            run, train, score=0.9, n_steps=4, tokens_in=100, tokens_out=20, cost_usd=0.5,
            latency_s=12.0, started_at=NOW - timedelta(hours=1), harness=h,
        ),
        "bad": make_rollout(
            run, select, score=0.2, answer="100 % sure", n_steps=40,
            started_at=datetime(2026, 11, 28, 23, 59, tzinfo=UTC), harness=h,
        ),
        "errored": make_rollout(
            run, test, state="errored", cause="session_lost", message="The disk is full",
            answer="", harness=h, started_at=datetime(2026, 11, 29, 8, 0, tzinfo=UTC),
        ),
        "waiting": make_rollout(
            other, tasks_of(other, "train")[1], state="pending", answer="",
            harness=make_harness(project),
        ),
    }  # fmt: skip
    for name, criterion, state, value in (
        ("good", "file_exists", "scored", 1.0),
        ("bad", "file_exists", "scored", 0.5),
        ("errored", "file_exists", "errored", None),
        ("good", "tone of.voice", "not_applicable", None),
    ):
        VerdictRecord.objects.create(
            rollout=made[name], criterion=criterion, name=criterion, state=state, value=value,
            reason="because",
        )  # fmt: skip
    append(stream_id=made["good"].stream_id, items=[observation(("env_output", "no space left"))])
    append(
        stream_id=made["bad"].stream_id,
        items=[observation(("env_output", "left no space")), NewEvent("waiting", {})],
    )
    return made


def found(project: Project, text: str) -> QuerySet[Rollout]:
    where = condition(parse(text), ROLLOUTS, project_id=project.pk, now=NOW)
    return Rollout.objects.filter(run__project=project).filter(where)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "good bad errored waiting"),
        ("score < 0.5", "bad"),
        ("not score < 0.5", "good errored waiting"),
        ("score != 0.2", "good"),
        ("score is empty", "errored waiting"),
        ("score is not empty", "good bad"),
        ("score in (0.2, 0.9)", "good bad"),
        ("score not in (0.2)", "good"),
        ("state = errored", "errored"),
        ("state not in (errored, PENDING)", "good bad"),
        ("split = test or split = train", "good errored waiting"),
        ("run = {run}", "good bad errored"),
        ("label ~ SEC", "waiting"),
        ("purpose = ci", "waiting"),
        ("harness = {harness}", "good bad errored"),
        ("harness != {harness}", "waiting"),
        ("task = TRAIN-0001", "good"),
        ("family = count_lines", "good bad errored"),
        ("answer ~ '%'", "bad"),
        ("answer is empty", "errored waiting"),
        ("reason ~ 'disk is'", "errored"),
        ("cause = session_lost", "errored"),
        ("tokens > 100", "good"),
        ("cost >= 0.5", "good"),
        ("latency > 10", "good"),
        ("steps >= 40", "bad"),
        ("events = 2", "bad"),
        ("started > 2h", "good"),
        ("started < 2h", "bad errored"),
        ("started = yesterday", "errored"),
        ("started > 2026-11-28", "good errored"),
        ("started >= 2026-11-28", "good bad errored"),
        ("started <= 2026-11-28", "bad"),
        ("started < 2026-11-29", "bad"),
        ("started != 2026-11-29", "good bad"),
        ('started = "2026-11-28 23:59"', "bad"),
        ("started is empty", "waiting"),
        ("verdict.file_exists < 1", "bad"),
        ("verdict.file_exists = errored", "errored"),
        ("verdict.file_exists != errored", "good bad"),
        ("verdict.file_exists is empty", "waiting"),
        ("verdict.file_exists is not empty", "good bad errored"),
        ("not verdict.file_exists < 1", "good errored waiting"),
        ('verdict."tone of.voice" = not_applicable', "good"),
        ("verdict.nothing > 0", ""),
        ("sampling.temperature > 0.5", "good bad errored"),
        ("not sampling.temperature > 0.5", "waiting"),
        ("sampling.temperature = hot", "waiting"),
        ("sampling.greedy = false", "good bad errored"),
        ("sampling.stop is empty", "waiting"),
        ("sampling.stop ~ en", "good bad errored"),
        ('"no space"', "good bad"),
        ('"space left"', "good"),
        ("left space no", "good bad"),
        ("spac*", "good bad"),
        ('"no space" score < 0.5', "bad"),
        ("not space", "errored waiting"),
        ("(score > 0.5 or state = errored) and not split = test", "good"),
    ],
)
def test_it_finds(project: Project, rows: dict[str, Rollout], text: str, expected: str) -> None:
    good = rows["good"]
    asked = text.format(run=good.run_id, harness=good.harness.sha256)
    names = {row.pk: name for name, row in rows.items()}
    assert {names[row.pk] for row in found(project, asked)} == set(expected.split())
    if "2h" not in text and "yesterday" not in text:
        walked = rollouts_matching(project.pk, asked, in_order=True)
        assert {names[row.pk] for row in walked} == set(expected.split()), "in the other form"


@pytest.mark.parametrize(
    ("text", "wrong", "words"),
    [
        ("scroe < 0.5", "scroe", "Did you mean score?"),
        ("score.x < 0.5", "score.x", "no parts"),
        ("spec.answer = 3", "spec.answer", "no field"),
        ("score < half", "half", "no number"),
        ("score ~ 5", "score", "a number"),
        ("score < nan", "nan", "no number"),
        ("state = eror", "eror", "Did you mean errored?"),
        ("state < errored", "state", "choice"),
        ("run = latest", "latest", "whole number"),
        ("run = 99999999999999999999", "99999999999999999999", "whole number"),
        ("harness = xyz", "xyz", "no hash"),
        ("started > soon", "soon", "no time"),
        ("started > 0000-01-01", "0000-01-01", "no time"),
        ("verdict < 1", "verdict", "criterion"),
        ("verdict.a < good", "good", "no number, or scored"),
        ("sampling = 3", "sampling", "behind a point"),
        ("score = 1 and '...'", "'...'", "no word"),
        ("started > 999999w", "999999w", "no time"),
    ],
)
def test_it_says_what_a_field_cannot_mean(
    project: Project, text: str, wrong: str, words: str
) -> None:
    with pytest.raises(FilterError) as caught:
        found(project, text)
    assert words in caught.value.message
    assert text[caught.value.start : caught.value.end] == wrong


def test_another_project_is_never_searched(project: Project, rows: dict[str, Rollout]) -> None:
    stranger = make_project()
    assert not found(stranger, "space").exists()
    assert not found(stranger, "verdict.file_exists < 1").exists()


def test_a_path_is_a_name_and_no_lookup(project: Project, rows: dict[str, Rollout]) -> None:
    for text in ('sampling."a\\"b.contains" = 1', "sampling.temperature.gt = 0", "sampling.0 = 1"):
        assert not found(project, text).exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("score > 0.5", "first"),
        ("errored > 0", "first"),
        ("scored = 0", "second"),
        ("rollouts >= 3", "first"),
        ("cost > 0.4", "first"),
        ("purpose = ci", "second"),
        ('"space left"', "first"),
        ("not space", "second"),
        ("sampling.temperature = 0.7", "first"),
        ("kind = terminal version = 1", "first second"),
        ("state = completed label ~ i", "first"),
    ],
)
def test_runs_are_found(
    project: Project, rows: dict[str, Rollout], text: str, expected: str
) -> None:
    where = condition(parse(text), RUNS, project_id=project.pk, now=NOW)
    runs: Any = with_sums(Run.objects.filter(project=project)).filter(where)
    assert {run.label for run in runs} == set(expected.split())
