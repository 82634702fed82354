"""A project that was exported in the middle of work is sound where it comes in."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.harness import Harness
from optimizer.models import HarnessVersion, Search
from optimizer.store import store_harness
from orchestrator.climbs.models import Climb
from orchestrator.events.models import Event, Stream
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.gates.models import Gate
from orchestrator.invariants.verification import verify
from orchestrator.keeping.archive.reading import read_archive
from orchestrator.keeping.archive.rows import discard
from orchestrator.keeping.archive.tables import UNDER_WAY
from orchestrator.keeping.archive.writing import write_archive
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from orchestrator.runs.queries import ended_payload
from orchestrator.searches.ending import fail_search
from orchestrator.searches.services import resume
from rubrics.codec import content_hash, from_json, to_json
from rubrics.models import Rubric, RubricVersion
from tests.base import make_project
from tests.keeping.filled import RUBRIC
from tests.web import build
from tests.web.build import (
    ACTION,
    make_climb,
    make_environment,
    make_rollout,
    make_run,
    make_training_job,
    started,
    tasks_of,
)
from training.models import TrainingJob

pytestmark = pytest.mark.django_db


def harness(project: Project, **texts: str) -> HarnessVersion:
    number = HarnessVersion.objects.count()
    told = " ".join([f"Act {number}.", *texts.values()])
    return store_harness(project_id=project.pk, harness=Harness(instructions=f"{told}\n"))


def rubric(project: Project) -> RubricVersion:
    spec = from_json(RUBRIC)
    made = Rubric.objects.create(project=project, name=f"answer-{Rubric.objects.count()}")
    return RubricVersion.objects.create(
        rubric=made, number=1, spec=to_json(spec), sha256=content_hash(spec)
    )


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Project:
    """A training after two of four steps, a search, a gate and a climb, and a run with a rollout in
    every state.
    """
    # An import looks at the hashes, which these builders make up.
    monkeypatch.setattr(build, "make_harness", harness)
    monkeypatch.setattr(build, "make_rubric", rubric)
    project = make_project(name="Words")
    training = make_training_job(project)
    steps = [NewEvent("train.step", {"step": step, "total": 4, "attempt": 1}) for step in (1, 2)]
    append(stream_id=training.stream_id, items=steps)
    climb = make_climb(project)
    Search.objects.update(state="running")
    assert climb.search is not None
    assert climb.search.stream_id is not None
    told = [NewEvent("search.state", {"state": "running", "error": ""})]
    append(stream_id=climb.search.stream_id, items=told)
    version = make_environment(project)
    run = make_run(project, state="running", ended_at=None, environment_version=version)
    append(stream_id=run.stream_id, items=[NewEvent("tally", {"planned": 4, "running": 2})])
    states = ("scored", "running", "judging", "pending")
    for replicate, state in enumerate(states):
        begin(make_rollout(run, tasks_of(run)[0], state=state, replicate=replicate))
    Gate.objects.create(
        project=project,
        stream=create_stream(project=project, kind="gate"),
        name="Tighter",
        state="running",
        environment_version=version,
        rubric_version=run.rubric_version,
        candidate_model=run.model,
        baseline_model=run.model,
        baseline=harness(project),
        candidate=harness(project, **{"rules.md": "Be brief."}),
    )
    return project


def begin(rollout: Rollout) -> None:
    if rollout.state == "pending":
        return
    events = [started(), NewEvent("action", ACTION)]
    if rollout.state in ("scored", "judging"):
        events.append(judge(rollout, "right", "scored", 1.0))
    if rollout.state == "judging":
        judge(rollout, "best_of_group", "pending", None)
        events.append(NewEvent("rollout.judging", ended_payload(rollout)))
    if rollout.state == "scored":
        events.append(NewEvent("rollout.ended", ended_payload(rollout)))
    append(stream_id=rollout.stream_id, items=events)


def judge(rollout: Rollout, criterion: str, state: str, value: float | None) -> NewEvent:
    VerdictRecord.objects.create(
        rollout=rollout, criterion=criterion, name=criterion, state=state, value=value
    )
    return NewEvent("verdict", {"criterion": criterion, "state": state, "value": value})


def moved(project: Project, path: Path) -> Project:
    """The same elsewhere; here it is gone."""
    write_archive(project=project, path=path, version="1")
    other = Project.objects.create(name="Words")
    discard(project)
    read_archive(project=other, path=path)
    return other


def test_all_that_was_under_way_has_ended_in_its_log_too(project: Project, tmp_path: Path) -> None:
    moved(project, tmp_path / "a.zip")

    report = verify(at_rest=True)

    assert report.findings == []
    assert report.looked_at["rollouts"] == 4
    assert report.looked_at["owners"] >= 6
    assert TrainingJob.objects.get().state == "cancelled"
    (end,) = Event.objects.filter(kind="train.ended").values_list("payload", flat=True)
    assert end == {"state": "cancelled", "error": UNDER_WAY}
    assert Gate.objects.get().state == Search.objects.get().state == "cancelled"
    assert Climb.objects.get().state == "cancelled"


def test_a_rollout_that_was_cut_off_says_which_verdicts_it_lacks(
    project: Project, tmp_path: Path
) -> None:
    moved(project, tmp_path / "a.zip")

    cut = Rollout.objects.get(verdicts__criterion="best_of_group")
    events = list(Event.objects.filter(stream=cut.stream_id).order_by("seq"))

    assert [event.kind for event in events[-3:]] == ["rollout.judging", "verdict", "rollout.ended"]
    assert events[-2].payload["criterion"] == "best_of_group"
    assert (events[-2].payload["state"], events[-2].payload["reason"]) == ("errored", UNDER_WAY)
    assert events[-1].payload["message"] == UNDER_WAY
    run = Run.objects.get(pk=cut.run_id)
    *_, tally, end = Event.objects.filter(stream=run.stream_id).order_by("seq")
    assert (tally.kind, tally.payload["cancelled"], tally.payload["scored"]) == ("tally", 3, 1)
    assert (end.kind, end.payload["state"]) == ("run.ended", "failed")


def states_told(search: Search) -> list[str]:
    told = Event.objects.filter(stream=search.stream_id, kind="search.state").order_by("seq")
    return [event.payload["state"] for event in told]


def test_a_search_that_had_failed_before_it_went_on_ends_once_more(
    project: Project, tmp_path: Path
) -> None:
    search = Search.objects.get()
    fail_search(search=search, error="the model was away")
    resume(search=search)
    assert states_told(search)[-2:] == ["failed", "queued"]

    other = moved(project, tmp_path / "a.zip")

    search = Search.objects.get(project=other)
    assert states_told(search) == ["running", "failed", "queued", "cancelled"]
    assert verify().findings == []


@pytest.mark.parametrize("state", ["running", "awaiting_approval"])
def test_a_search_that_went_on_after_its_log_was_read_has_gone_on_in_it(
    project: Project, tmp_path: Path, state: str
) -> None:
    search = Search.objects.get()
    fail_search(search=search, error="the model was away")
    Search.objects.update(state=state, error="", started_at=search.created_at)

    other = moved(project, tmp_path / "a.zip")

    search = Search.objects.get(project=other)
    assert search.state == ("cancelled" if state == "running" else state)
    assert states_told(search) == ["running", "failed", "running", search.state]
    assert verify().findings == []


def test_what_the_log_tells_later_than_the_rows_is_made_up_for(
    project: Project, tmp_path: Path
) -> None:
    """An export reads logs' ends first: a run that ends meanwhile has ended by its row alone."""
    ended = Run.objects.exclude(state="running").earliest("pk")
    assert not Event.objects.filter(stream=ended.stream_id).exists()

    other = moved(project, tmp_path / "a.zip")

    twin = Run.objects.filter(project=other).exclude(error=UNDER_WAY).earliest("pk")
    (end,) = Event.objects.filter(stream=twin.stream_id, kind="run.ended")
    assert end.payload == {"state": "completed", "error": ""}


def test_coming_and_going_again_adds_nothing(project: Project, tmp_path: Path) -> None:
    there = moved(project, tmp_path / "a.zip")
    n_events = Event.objects.count()
    first = write_archive(project=there, path=tmp_path / "b.zip", version="1").content

    again = Project.objects.create(name="Words")
    read_archive(project=again, path=tmp_path / "b.zip")

    assert Event.objects.filter(stream__project=again).count() == n_events
    assert write_archive(project=again, path=tmp_path / "c.zip", version="1").content == first
    assert not Stream.objects.filter(project=again, last_seq=0, kind="rollout").exists()
