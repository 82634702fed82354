"""What the pages say about real rows."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.environments.errors import EnvironmentProbeError
from orchestrator.events.services import NewEvent, append
from orchestrator.jobs.services import enqueue
from orchestrator.processes.beating import Beating
from orchestrator.processes.models import Process
from orchestrator.web.health import ModelServerProbe, worker_sign
from orchestrator.web.views import environments as environment_views
from tests.base import People
from tests.web.build import (
    ACTION,
    make_climb,
    make_harness,
    make_rollout,
    make_run,
    make_trace,
    observation,
    started,
    tasks_of,
)


@pytest.fixture
def client(people: People) -> Client:
    client = Client()
    client.force_login(people.owner)
    return client


def get(client: Client, people: People, name: str, *arguments: object, query: str = "") -> str:
    url = reverse(f"web:{name}", args=[people.project.pk, *arguments])
    response = client.get(f"{url}{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_an_errored_rollout_shows_its_reason_and_no_number(client: Client, people: People) -> None:
    run = make_run(people.project)
    tasks = tasks_of(run)
    make_rollout(run, tasks[0])
    make_rollout(run, tasks[1], state="errored", cause="session_lost", message="the session broke")
    html = get(client, people, "run", run.pk)
    assert "session lost: the session broke" in html
    assert "1 errored" in html
    assert "0.00" not in html.split("data-rows")[1].split("</table>")[0]


def test_a_run_that_could_not_be_scored_says_so(client: Client, people: People) -> None:
    run = make_run(people.project, state="completed_unscored", error="31 of 40 errored")
    html = get(client, people, "run", run.pk)
    assert "Too few rollouts could be scored" in html and "31 of 40 errored" in html


def test_the_run_list_pages_by_keyset(client: Client, people: People) -> None:
    first = make_run(people.project, label="the first one")
    environment, rubric, model = first.environment_version, first.rubric_version, first.model
    for _ in range(50):
        make_run(
            people.project, environment_version=environment, rubric_version=rubric, model=model
        )
    html = get(client, people, "runs")
    assert "the first one" not in html and 'rel="next"' in html
    after = html.split("after=")[1].split('"')[0]
    assert "the first one" in get(client, people, "runs", query=f"?after={after}")


def test_an_empty_filter_is_not_an_empty_project(client: Client, people: People) -> None:
    assert "No runs yet" in get(client, people, "runs")
    make_run(people.project)
    html = get(client, people, "runs", query="?q=state+%3D+failed")
    assert "No run matches this filter" in html and "There are 1 run without it" in html


@pytest.mark.parametrize(
    "query", ["?before=x", "?before=-1", "?state=%27", "?purpose=<b>", "?before=" + "9" * 40]
)
def test_a_strange_filter_is_ignored(client: Client, people: People, query: str) -> None:
    make_run(people.project)
    assert "No such" not in get(client, people, "runs", query=query)


def test_the_trace_tells_trained_from_untrained_words(client: Client, people: People) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    make_trace(rollout)
    html = get(client, people, "rollout", rollout.pk)
    assert 'class="segm env_output"' in html and 'class="segm scaffold"' in html
    assert "not trained" in html
    assert 'class="sh-cmd">wc</span>' in html
    assert 'id="e3"' in html and 'href="#e3"' in html


def test_a_negative_criterion_that_did_not_happen_is_good(client: Client, people: People) -> None:
    run = make_run(people.project)
    spec = {"criteria": [{"id": "no-deletion", "kind": "forbidden_command", "negative": True}]}
    type(run.rubric_version).objects.update(spec=spec)
    rollout = make_rollout(run, tasks_of(run)[0])
    verdict = {
        "criterion": "no-deletion",
        "name": "Deletes nothing",
        "state": "scored",
        "value": 0.0,
    }
    append(stream_id=rollout.stream_id, items=[started(), NewEvent("verdict", verdict)])
    for name in ("rollout", "rollout_cards"):
        html = get(client, people, name, rollout.pk)
        card = html.split('id="e2"')[1].split("</article>")[0]
        assert "pill good" in card
        assert "avoided 0.00" in card


def test_a_rollout_that_waits_for_a_session_says_so(client: Client, people: People) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    waiting = {"waited_s": 3.0, "active": 4, "maximum": 4}
    append(stream_id=rollout.stream_id, items=[NewEvent("waiting", waiting)])
    assert "4 of 4 sessions" in get(client, people, "rollout", rollout.pk)


def test_a_refused_action_says_why(client: Client, people: People) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    refused = {
        **ACTION,
        "form": "text",
        "command": None,
        "accepted": False,
        "reason": "not a command",
    }
    append(
        stream_id=rollout.stream_id, items=[started(), NewEvent("action", {**refused, "text": ""})]
    )
    html = get(client, people, "rollout", rollout.pk)
    assert "Not carried out: not a command" in html
    assert "The model returned no text." in html


def test_a_cut_off_attempt_is_folded(client: Client, people: People) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0], attempt=2)
    append(
        stream_id=rollout.stream_id,
        items=[
            started(),
            NewEvent("rollout.restarted", {"attempt": 2, "reason": "the worker was killed"}),
            started(2),
        ],
    )
    html = get(client, people, "rollout", rollout.pk)
    assert "the worker was killed" in html
    assert html.index('id="attempt-1"') < html.index('id="e3"')


def test_text_from_outside_is_never_markup(client: Client, people: People) -> None:
    run = make_run(people.project)
    evil = "<script>alert(1)</script>\x00\u202e"
    rollout = make_rollout(run, tasks_of(run)[0], state="errored", message=evil)
    append(
        stream_id=rollout.stream_id,
        items=[
            NewEvent(
                "rollout.started", {"prompt": evil, "messages": [{"role": "user", "content": evil}]}
            ),
            NewEvent("action", {**ACTION, "text": evil, "command": evil}),
            observation(("env_output", evil)),
            NewEvent("novel", {"text": evil}),
        ],
    )
    for html in (get(client, people, "rollout", rollout.pk), get(client, people, "run", run.pk)):
        assert "<script>alert" not in html
        assert "\u202e" not in html


def test_new_cards_come_after_a_sequence(client: Client, people: People) -> None:
    run = make_run(people.project, state="running", ended_at=None)
    rollout = make_rollout(run, tasks_of(run)[0], state="running")
    append(stream_id=rollout.stream_id, items=[started(), NewEvent("action", ACTION)])
    html = get(client, people, "rollout_cards", rollout.pk, query="?after=1")
    assert 'id="e2"' in html and 'id="e1"' not in html


def test_the_download_is_the_stored_trace(client: Client, people: People) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    make_trace(rollout)
    url = reverse("web:rollout_jsonl", args=[people.project.pk, rollout.pk])
    response = client.get(f"{url}?download")
    lines = [json.loads(line) for line in response.getvalue().decode().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5]
    assert "attachment" in response["Content-Disposition"]


def test_the_ladder_shows_gain_interval_and_counts(client: Client, people: People) -> None:
    climb = make_climb(people.project)
    html = get(client, people, "climb", climb.pk).replace("&nbsp;", " ")
    assert "From 2 % to 75 %, certified" in html
    assert "[+0.61, +0.84]" in html and "2 errored" in html
    assert "Harness certified." in html
    assert "Train step 3: 8 of 32 rollouts" in html
    assert 'id="certificate-1"' not in html, "a rung without a certificate links to none"
    assert 'id="certificate-0"' in html


def test_the_harness_diff_names_what_was_added(client: Client, people: People) -> None:
    climb = make_climb(people.project)
    html = get(client, people, "climb", climb.pk)
    assert "rules.md" in html and "Act, do not explain." in html


def test_demonstrations_are_dialogues(client: Client, people: People) -> None:
    climb = make_climb(people.project)
    line = json.dumps(
        {"id": "d1", "messages": [{"role": "user", "content": "How many?"}], "source": "train-0001"}
    )
    rung = climb.rungs.get(index=1)
    rung.harness = make_harness(people.project, **{"demonstrations.jsonl": line})
    rung.save()
    html = get(client, people, "climb", climb.pk)
    assert "from train-0001" in html and "How many?" in html


def test_a_failed_climb_says_why_and_does_not_climb(client: Client, people: People) -> None:
    climb = make_climb(people.project, state="failed", error="The model server answered 500.")
    climb.rungs.filter(index=1).update(verdict="", score=None, state="failed")
    html = get(client, people, "climb", climb.pk)
    assert "The model server answered 500." in html
    assert "; climbing" not in html


def test_an_empty_project_names_the_next_step(client: Client, people: People) -> None:
    for name in ("overview", "climbs", "environments", "rubrics", "runs"):
        assert "make demo" in get(client, people, name), name


def test_a_refused_server_keeps_what_was_typed(
    client: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise EnvironmentProbeError("Nothing answers at http://127.0.0.1:9. Is the server running?")

    monkeypatch.setattr(environment_views, "connect_environment", refuse)
    response = client.post(
        reverse("web:environments", args=[people.project.pk]),
        {"name": "mine", "base_url": "http://127.0.0.1:9"},
    )
    html = response.content.decode()
    assert response.status_code == 422
    assert "Nothing answers at http://127.0.0.1:9." in html
    assert 'value="mine"' in html and 'value="http://127.0.0.1:9"' in html


def test_an_address_that_is_none_is_refused_without_a_probe(client: Client, people: People) -> None:
    response = client.post(
        reverse("web:environments", args=[people.project.pk]),
        {"name": "mine", "base_url": "ftp:/x"},
    )
    assert response.status_code == 422
    assert 'id="err-url"' in response.content.decode()


def test_a_theme_is_a_cookie_that_the_server_renders(client: Client, people: People) -> None:
    client.post(reverse("web:theme"), {"theme": "dark", "next": "https://elsewhere.example/"})
    html = get(client, people, "overview")
    assert '<html lang="en" data-theme="dark">' in html
    client.cookies["theme"] = '"><script>'
    assert "data-theme" not in get(client, people, "overview").split(">")[1]


def test_a_redirect_stays_on_this_site(client: Client) -> None:
    response = client.post(
        reverse("web:theme"), {"theme": "dark", "next": "https://elsewhere.example/"}
    )
    assert response["Location"] == "/"


def test_error_pages_are_ours(client: Client, people: People) -> None:
    client.raise_request_exception = False
    missing = client.get(f"/p/{people.project.pk}/runs/999999/")
    assert missing.status_code == 404 and "No such page" in missing.content.decode()


def test_no_page_allows_inline_code(client: Client, people: People) -> None:
    policy = client.get(reverse("web:overview", args=[people.project.pk]))[
        "Content-Security-Policy"
    ]
    assert "unsafe" not in policy and "default-src 'none'" in policy


@pytest.mark.django_db
def test_a_job_that_nobody_takes_is_a_warning(people: People, settings: Any) -> None:
    settings.PROCESS_BEAT_S = 600
    Beating("worker", queues=["default"], slots=1).beat()
    assert worker_sign().level == "ok"
    job = enqueue(kind="fault.count", spec={})
    type(job).objects.filter(pk=job.pk).update(created_at="2020-01-01T00:00:00Z")
    sign = worker_sign()
    assert sign.level == "bad" and "no worker takes jobs" in sign.text


@pytest.mark.django_db
def test_no_worker_is_another_state_than_idle_workers(settings: Any) -> None:
    settings.PROCESS_BEAT_S = 600  # a sign of life counts for longer than this may take
    Beating("web").beat()
    sign = worker_sign()
    assert (sign.level, sign.text) == ("warn", "no worker is running: start one with make up")
    assert "Celery" in sign.detail, "the way to start one where `make up` is not it"

    worker = Beating("worker", queues=["default"], slots=4)
    worker.beat()
    assert worker_sign().level == "ok" and worker_sign().text == "1 worker idle, no job waits"
    Beating("worker", queues=["gpu"], slots=1).beat()
    assert worker_sign().text == "2 workers idle, no job waits"

    Process.objects.filter(kind="worker").update(seen_at=timezone.now() - timedelta(hours=2))
    assert worker_sign().level == "warn", "its last sign of life is too long ago"


def test_the_foot_and_the_overview_say_how_to_start_a_worker(
    client: Client, people: People
) -> None:
    text = client.get(reverse("web:overview", args=[people.project.pk])).content.decode()

    foot = text[text.index('<footer class="status"') :]
    assert 'data-name="workers" data-level="warn" title="Start the workers with make up,' in foot
    assert "no worker is running: start one with make up</span>" in foot
    assert "Start the workers with <code>make up</code>, or Celery" in text
    told = client.get(reverse("web:status", args=[people.project.pk])).json()["signs"]
    worker = next(sign for sign in told if sign["name"] == "workers")
    assert worker["level"] == "warn" and "`" not in worker["detail"]


def test_a_dead_model_server_does_not_hold_up_a_page(settings: object) -> None:
    probe = ModelServerProbe()
    assert probe.sign().level == "unknown"
