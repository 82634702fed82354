"""`Check environment`, from the request to the warning: durable, one result after another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied

from orchestrator.environments import folders
from orchestrator.environments.conformance import jobs, running
from orchestrator.environments.conformance.catalogue import CATALOGUE
from orchestrator.environments.conformance.finding import Finding, Status, passed
from orchestrator.environments.conformance.graders import GRADERS
from orchestrator.environments.conformance.preparing import replies_of, tasks_to_check
from orchestrator.environments.conformance.queries import (
    badge_of,
    latest_finished,
    report_of,
    seed_effect,
    warnings_for,
)
from orchestrator.environments.conformance.services import cancel_check, check_environment
from orchestrator.environments.conformance.subject import Subject
from orchestrator.environments.models import (
    CheckState,
    Environment,
    EnvironmentCheck,
    EnvironmentKind,
    EnvironmentVersion,
)
from orchestrator.environments.services import NewTask, create_version
from orchestrator.environments.terminal.tasks import generate
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from tests.base import People
from tests.doubles.openenv_servers import FaultServer
from tests.environments.conftest import ServerFactory, needs_bubblewrap

pytestmark = pytest.mark.django_db(transaction=True)


def ready(server: FaultServer) -> str:
    asyncio.run(server.ready())
    return server.base_url


def make_version(people: People, base_url: str, fault: str = "") -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=people.project,
        slug=f"guess-{Environment.objects.count()}",
        name="Guess",
        kind=EnvironmentKind.URL,
    )
    reset = {"task": "a", **({"fault": fault} if fault else {})}
    return create_version(
        environment=environment,
        source={"base_url": base_url},
        settings={"reward_range": [0, 1], "connect_timeout_s": 2},
        tasks=[NewTask(key="a", split="train", prompt="Guess.", reset=reset)],
    )


def run_check(people: People, version: EnvironmentVersion) -> EnvironmentCheck:
    check = check_environment(actor=people.editor, version=version)
    assert check.job_id is not None
    run_attempt(check.job_id)
    check.refresh_from_db()
    return check


def statuses(check: EnvironmentCheck) -> dict[str, str]:
    return {r.check_id: r.status for r in check.results.all()}


def test_a_sound_environment_is_checked_and_says_so(
    people: People, shared_server: ServerFactory
) -> None:
    version = make_version(people, ready(shared_server("guess_env")))
    assert [w["code"] for w in warnings_for(version)] == ["check.never"]
    check = run_check(people, version)
    assert (check.state, check.error) == (CheckState.COMPLETED, "")
    assert list(statuses(check)) == list(CATALOGUE)
    assert set(statuses(check).values()) == {"pass", "skip"}
    assert warnings_for(version) == []
    assert (badge_of(version).text, seed_effect(version)) == ("checked", "honoured")


def test_a_failed_check_warns_on_runs_and_a_later_good_one_takes_it_back(
    people: People, shared_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = make_version(people, ready(shared_server("guess_env")), fault="pays_noop")
    run_check(people, version)
    found = {w["code"]: w["text"] for w in warnings_for(version)}
    assert list(found) == ["check.canary_floor"]
    assert "Doing nothing pays nothing" in found["check.canary_floor"]
    assert badge_of(version).text == "1 check failed"

    async def good(subject: Subject) -> Finding:
        return passed("Nothing is paid.")

    monkeypatch.setitem(GRADERS, "canary_floor", good)
    run_check(people, version)
    assert warnings_for(version) == []
    assert version.checks.count() == 2


def test_a_server_that_does_not_answer_fails_the_start_and_leaves_the_rest_untold(
    people: People, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def grade(grader: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(next(name for name, known in GRADERS.items() if known is grader))
        return await real_grade(grader, *args, **kwargs)

    real_grade = running.grade
    monkeypatch.setattr(jobs, "grade", grade)
    version = make_version(people, f"unix://{tmp_path}/none.sock")
    version.environment.kind = EnvironmentKind.URL
    check = run_check(people, version)
    found = statuses(check)
    assert check.state == CheckState.COMPLETED
    assert found.pop("startup") == "fail"
    assert set(found.values()) == {"error"}
    assert asked == ["startup"]


def test_a_grader_that_breaks_leaves_its_neighbours_alone(
    people: People, shared_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(subject: Subject) -> Finding:
        raise ZeroDivisionError("a defect")

    monkeypatch.setitem(GRADERS, "seed_control", breaks)
    check = run_check(people, make_version(people, ready(shared_server("guess_env"))))
    result = check.results.get(check_id="seed_control")
    assert (result.status, "a defect" in result.evidence) == (Status.ERROR, True)
    assert statuses(check)["episode_determinism"] == "pass"


def test_an_interrupted_check_goes_on_where_it_was(
    people: People, shared_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = make_version(people, ready(shared_server("guess_env")))
    check = check_environment(actor=people.editor, version=version)
    assert check.job is not None
    asked: list[str] = []

    def counting(name: str) -> Any:
        async def grader(subject: Subject) -> Finding:
            asked.append(name)
            if len(asked) == 4:
                raise SystemExit  # the worker dies in the middle of the fourth
            return passed("Good.")

        return grader

    for name in CATALOGUE:
        monkeypatch.setitem(GRADERS, name, counting(name))
    with pytest.raises(SystemExit):
        run_attempt(check.job.pk)
    assert len(statuses(check)) == 3
    type(check.job).objects.filter(pk=check.job.pk).update(lease_until="2020-01-01T00:00:00Z")
    run_attempt(check.job.pk)
    check.refresh_from_db()
    assert check.state == CheckState.COMPLETED
    assert asked == [*list(CATALOGUE)[:4], *list(CATALOGUE)[3:]]


def test_a_check_can_be_cancelled_and_keeps_what_it_found(
    people: People,
    shared_server: ServerFactory,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    settings.JOB_BEAT_S = 0.05
    version = make_version(people, ready(shared_server("guess_env")))
    check = check_environment(actor=people.editor, version=version)

    async def hangs(subject: Subject) -> Finding:
        def ask() -> None:
            cancel_check(actor=people.editor, check=check)

        await asyncio.to_thread(ask)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setitem(GRADERS, "reset_time", hangs)
    assert check.job_id is not None
    run_attempt(check.job_id)
    check.refresh_from_db()
    assert check.state == CheckState.CANCELLED
    assert list(statuses(check)) == ["startup"]
    assert latest_finished(version.pk) is None


def test_a_queued_check_is_cancelled_at_once(people: People) -> None:
    version = make_version(people, "http://127.0.0.1:9")
    check = check_environment(actor=people.editor, version=version)
    assert check_environment(actor=people.editor, version=version) == check, "one at a time"
    cancel_check(actor=people.editor, check=check)
    check.refresh_from_db()
    assert check.state == CheckState.CANCELLED
    assert check.job is not None
    assert Job.objects.get(pk=check.job.pk).state == JobState.CANCELLED


def test_only_editors_check(people: People) -> None:
    version = make_version(people, "http://127.0.0.1:9")
    with pytest.raises(PermissionDenied):
        check_environment(actor=people.member, version=version)


def test_the_report_names_what_is_still_to_come(people: People) -> None:
    version = make_version(people, "http://127.0.0.1:9")
    check = check_environment(actor=people.editor, version=version)
    assert [line.result for line in report_of(check)] == [None] * len(CATALOGUE)


def test_sealed_tasks_are_played_only_where_there_are_no_others(people: People) -> None:
    version = make_version(people, "http://127.0.0.1:9")
    version = create_version(
        environment=version.environment,
        source=version.source,
        tasks=[
            NewTask(key="t", split="test", prompt="x"),
            NewTask(key="s", split="select", prompt="x"),
        ],
    )
    assert [task.key for task in tasks_to_check(version)] == ["s"]


def test_a_transcript_of_function_calls_is_read_as_replies() -> None:
    call = {"function": {"name": "look", "arguments": {"at": "x"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Task."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "assistant", "content": "answer: 4"},
    ]
    assert list(replies_of(messages)) == ['look {"at": "x"}', "answer: 4"]


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize("name", ["database-mutations", "invoices", "questions", "terminal-files"])
def test_the_examples_come_out_clean(people: People, name: str) -> None:
    folder = folders.read_folder(Path(settings.BASE_DIR, "examples", name))
    stored = folders.store(actor=people.editor, project=people.project, environment=folder)
    check = run_check(people, stored.version)
    bad = {r.check_id: r.evidence for r in check.results.exclude(status__in=["pass", "skip"])}
    assert bad == {}


@needs_bubblewrap
@pytest.mark.slow
def test_the_terminal_kind_comes_out_clean(people: People) -> None:
    environment = Environment.objects.create(
        project=people.project, slug="files", name="Files", kind=EnvironmentKind.TERMINAL
    )
    version = create_version(
        environment=environment,
        source={},
        settings={"reward_range": [0, 1]},
        tasks=[
            NewTask(
                key=task.key,
                split=task.split,
                prompt=task.prompt,
                reset={"task": task.key},
                spec=task.as_json(),
                reference=[{"role": "user", "content": task.prompt}, *task.reference],
            )
            for task in generate(7, {"train": 4})
        ],
    )
    check = run_check(people, version)
    bad = {r.check_id: r.evidence for r in check.results.exclude(status="pass")}
    assert bad == {}
    assert check.results.count() == len(CATALOGUE)
