"""`/readyz`: parts that are tried for real, each with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client, RequestFactory

from orchestrator import measures
from orchestrator.operating import parts
from orchestrator.operating.access import may_look_inside
from orchestrator.operating.parts import Away, Part, State, Watch, worst
from orchestrator.processes.beating import Beating
from orchestrator.processes.models import Process


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], Any]:
    """Asks an own watch that remembers nothing."""

    def ask(client: Client, host: str = "localhost") -> Any:
        monkeypatch.setattr(parts, "watch", Watch(deadline_s=60))
        address = "127.0.0.1" if host == "localhost" else "192.0.2.1"
        return client.get("/readyz", HTTP_HOST=host, REMOTE_ADDR=address)

    return ask


@pytest.fixture
def swept() -> Iterator[None]:
    measures.SWEPT_AT.set_to_current_time()
    yield
    measures.SWEPT_AT.set(0)


@pytest.mark.django_db(transaction=True)
def test_what_is_missing_without_workers_is_told_and_pages_are_served(
    client: Client, ready: Callable[[Client], Any]
) -> None:
    answer = ready(client)

    assert answer.status_code == 200, answer.json()
    assert answer.json()["status"] == "degraded"
    told = {part["name"]: part for part in answer.json()["parts"]}
    assert told["database"]["level"] == "ok" and "committed" in told["database"]["text"]
    assert {name for name, part in told.items() if part["level"] == "degraded"} == {
        "workers",
        "sweep",
    }
    assert "default" in told["workers"]["text"]
    assert not Process.objects.exists(), "the probe leaves nothing behind"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("swept")
def test_with_all_parts_it_is_ready(
    client: Client, ready: Callable[[Client], Any], settings: Any
) -> None:
    settings.PROCESS_BEAT_S = 600  # a sign of life counts for longer than this may take
    Beating("worker", queues=["default", "rollouts", "gpu"], slots=4).beat()
    Beating("sweep").beat()

    answer = ready(client)

    assert answer.json() == {"status": "ready", "parts": answer.json()["parts"]}
    assert {part["level"] for part in answer.json()["parts"]} == {"ok"}


@pytest.mark.django_db(transaction=True)
def test_strangers_learn_whether_and_not_why(
    client: Client, ready: Callable[..., Any], settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    answer = ready(client, host="switchback.example")

    assert answer.json() == {"status": "degraded"}


def test_a_part_that_hangs_is_away_and_is_asked_once() -> None:
    asked, release = [], threading.Event()

    def hangs() -> str:
        asked.append(1)
        release.wait(60)
        return "back"

    watch = Watch([Part("slow", True, hangs)], deadline_s=0.05)
    first = watch.states()
    watch._asked_s = float("-inf")
    again = watch.states()
    release.set()

    assert first == again
    assert [(one.level, one.text) for one in first] == [("down", "no answer within 0.05 s")]
    watch._deadline_s, watch._asked_s = 60, float("-inf")
    assert watch.states() == [State("slow", "ok", "back")]
    assert len(asked) == 1


def test_a_part_that_is_not_needed_leaves_the_process_serving() -> None:
    def away() -> str:
        raise Away("gone")

    needed, other = Part("a", True, away), Part("b", False, away)

    assert worst(Watch([needed, other], deadline_s=60).states()) == "down"
    assert worst(Watch([other], deadline_s=60).states()) == "degraded"


def test_what_is_away_is_told_apart_from_what_to_do_about_it() -> None:
    def broken() -> str:
        raise ValueError("odd")

    def away() -> str:
        raise Away("gone", "run `this`")

    def hangs() -> str:
        release.wait(60)
        return ""

    release = threading.Event()
    # Each kind with a deadline of its own: those that answer need to be run first.
    answer = Watch([Part("broken", False, broken), Part("away", False, away)], deadline_s=60)
    hang = Watch([Part("hangs", False, hangs)], deadline_s=0.05)
    told = {state.name: state for state in (*answer.states(), *hang.states())}
    release.set()

    assert (told["away"].text, told["away"].fix) == ("gone", "run `this`")
    assert told["broken"].text == "ValueError: odd"
    assert told["hangs"].text == "no answer within 0.05 s"
    assert all(state.fix for state in told.values())


@pytest.mark.django_db(transaction=True)
def test_absent_workers_and_sweep_come_with_the_command_that_starts_them() -> None:
    looks = [Part("workers", False, parts.workers), Part("sweep", False, parts.sweep)]

    for state in Watch(looks, deadline_s=60).states():
        assert state.level == "degraded" and "`" not in state.text
        assert "`manage.py up`" in state.fix


def test_answers_are_kept_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FRESH_S", 3600)
    asked: list[int] = []

    def look() -> str:
        asked.append(1)
        return "well"

    watch = Watch([Part("a", True, look)], deadline_s=60)

    assert watch.states() is watch.states()
    assert len(asked) == 1


def test_a_read_only_data_folder_is_down(tmp_path: Any, settings: Any) -> None:
    settings.DATA_DIR = tmp_path / "absent"
    states = Watch([Part("data folder", True, parts.data_folder)], deadline_s=60).states()

    assert states[0].level == "down" and "absent" in states[0].text


def test_a_session_that_cannot_be_read_is_a_strangers(settings: Any) -> None:
    class Away:
        @property
        def is_superuser(self) -> bool:
            raise OperationalError("the database is away")

    request = RequestFactory().get("/readyz", REMOTE_ADDR="192.0.2.1")
    request.COOKIES[settings.SESSION_COOKIE_NAME] = "x"
    request.user = Away()  # type: ignore[assignment]

    assert may_look_inside(request) is False
