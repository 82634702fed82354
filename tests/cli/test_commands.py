"""What the commands do, say and exit with."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from orchestrator.gates.models import Gate
from orchestrator.runs.models import Run
from switchback_cli import account, data, origin
from switchback_cli.client import Server
from switchback_cli.errors import CommandFailed, Refused
from switchback_cli.main import main
from tests.base import People
from tests.cli.room import Shell, make_shell
from tests.gates.build import worth

pytestmark = pytest.mark.django_db


@pytest.fixture
def shell(people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("GITHUB_SHA", "GITHUB_REF_NAME", "CI_COMMIT_SHA", "GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    return make_shell(people, tmp_path, monkeypatch)


def test_a_better_change_exits_with_0_and_reports(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SHA", "abc123")
    files = {name: str(shell.folder / name) for name in ("j.xml", "c.md", "g.json")}
    code = shell.gate(
        *("--junit", files["j.xml"], "--markdown", files["c.md"], "--json", files["g.json"])
    )
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "better: +" in told.err and "/gates/" in told.err
    assert told.out == ""
    gate = shell.read("g.json")
    assert (gate["verdict"], gate["source"]["commit"]) == ("better", "abc123")
    assert gate["name"] == "Commit abc123"
    case = ElementTree.parse(files["j.xml"]).getroot().find("testsuite/testcase")
    assert case is not None and case.find("failure") is None
    comment = Path(files["c.md"]).read_text()
    assert comment.startswith("<!-- switchback-gate -->")
    assert "### Switchback: better: +" in comment and gate["html_url"] in comment


@pytest.mark.parametrize(
    ("chances", "more", "code", "tag"),
    [
        ((0.9, 0.1), (), 1, "failure"),
        ((0.5, 0.5), (), 2, "failure"),
        ((0.5, 0.5), ("--accept", "inconclusive"), 0, None),
        (None, (), 3, "error"),
    ],
)
def test_the_exit_code_is_the_verdict(
    shell: Shell,
    chances: tuple[float, float] | None,
    more: tuple[str, ...],
    code: int,
    tag: str | None,
) -> None:
    shell.rule = worth(*chances) if chances else lambda harness, rollout: None
    report = shell.folder / "j.xml"
    assert shell.gate("--junit", str(report), *more) == code
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    assert [child.tag for child in suite[0] if child.tag != "system-out"] == ([tag] if tag else [])
    assert suite.get("failures") == ("1" if tag == "failure" else "0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gate",), "Missing option"),
        (("gate", "--wish", "x"), "No such option"),
        (("tail", "rung", "1"), "no events of"),
    ],
)
def test_wrong_arguments_are_no_word_on_a_change(
    shell: Shell, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert shell.run(*words) == 3
    assert told in capsys.readouterr().err


def test_what_the_server_refuses_names_its_field(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.gate("--n-tasks", "3") == 3
    assert "tasks: " in capsys.readouterr().err
    assert shell.gate("--alpha", "3") == 3
    assert "policy.alpha: " in capsys.readouterr().err
    assert not Gate.objects.exists()


def test_without_a_token_it_says_how_to_get_one(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBACK_TOKEN", "swb_wrong")
    assert shell.gate() == 3
    assert "project's settings" in capsys.readouterr().err
    monkeypatch.delenv("SWITCHBACK_TOKEN")
    assert shell.gate() == 3
    assert "switchback login" in capsys.readouterr().err


def test_a_login_is_kept_for_its_owner_alone(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = account.server_of
    monkeypatch.setattr(
        data, "server_of", lambda *args, **more: made(*args, transport=shell.transport, **more)
    )
    secret = os.environ["SWITCHBACK_TOKEN"]
    monkeypatch.delenv("SWITCHBACK_TOKEN")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
    assert shell.run("login", "http://testserver") == 0, capsys.readouterr().err
    path = shell.folder / "config" / "switchback" / "login.json"
    assert path.stat().st_mode & 0o077 == 0
    assert secret not in capsys.readouterr().err
    monkeypatch.delenv("SWITCHBACK_URL")
    assert shell.gate("--no-wait") == 0


def test_a_run_is_started_followed_and_exported(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--environment", shell.version.environment.slug, "--rubric", "reward")
    more = ("--model", "small", "--harness", str(shell.folder / "after"), "--json")
    assert shell.run("run", *words, *more) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["rollouts"]["scored"]) == ("completed", 12)
    run = Run.objects.get()
    assert shell.run("export", "run", str(run.pk), "-o", str(shell.folder / "rows.jsonl")) == 0
    rows = (shell.folder / "rows.jsonl").read_text().splitlines()
    assert len(rows) == 12 and json.loads(rows[0])["task"]
    capsys.readouterr()
    assert shell.run("tail", "run", str(run.pk)) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["kind"] == "run.ended"
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_a_run_that_scores_too_little_is_infrastructure(shell: Shell) -> None:
    shell.rule = lambda harness, rollout: None
    words = ("--environment", shell.version.environment.slug, "--rubric", "reward")
    assert shell.run("run", *words, "--model", "small") == 3


def test_traces_from_elsewhere_come_in_once(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"rollout": "r1", "id": "e1", "kind": "action", "payload": {"text": "look"}}
    path = shell.folder / "t.jsonl"
    path.write_text(json.dumps(line) + "\n")
    shell.run("import", str(path))
    assert capsys.readouterr().err.strip()
    assert shell.run("import", str(shell.folder / "none.jsonl")) == 3


# --- a server that goes away ----------------------------------------------------------------------


def server(
    answers: list[httpx.Response | Exception], **more: Any
) -> tuple[Server, list[httpx.Request], list[str]]:
    asked: list[httpx.Request] = []
    told: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = Server(
        "http://away",
        "t",
        told=told.append,
        pause=lambda seconds: None,
        transport=httpx.MockTransport(handle),
        **more,
    )
    return made, asked, told


def test_a_restart_is_waited_out_and_told_once() -> None:
    away = [httpx.ConnectError("refused")] * 3 + [httpx.Response(503)] * 2
    made, asked, told = server([*away, httpx.Response(200, json={"id": 1})])
    assert made.get("projects/1/gates/1") == {"id": 1}
    assert len(asked) == 6
    assert told == ["Waiting for the server: ConnectError: refused", "The server is back."]


def test_a_repeat_of_a_start_carries_the_same_key() -> None:
    made, asked, _ = server([httpx.ReadTimeout("late"), httpx.Response(202, json={})])
    made.post("projects/1/gates", {"name": "x"})
    keys = {request.headers["Idempotency-Key"] for request in asked}
    assert len(asked) == 2 and len(keys) == 1


def test_patience_ends() -> None:
    made, _, _ = server([httpx.ConnectError("refused")], patience=0)
    with pytest.raises(CommandFailed, match="did not answer"):
        made.get("me")


def test_a_fault_of_the_server_is_told_and_not_repeated() -> None:
    made, asked, _ = server([httpx.Response(500, text="<h1>Server Error</h1>")])
    with pytest.raises(Refused, match="HTTP 500"):
        made.get("me")
    assert len(asked) == 1


def test_ci_systems_tell_where_a_change_comes_from() -> None:
    github = {
        "GITHUB_SHA": "a1",
        "GITHUB_REF_NAME": "12/merge",
        "GITHUB_HEAD_REF": "topic",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_RUN_ID": "7",
    }
    assert origin.source_of(github) == {
        "commit": "a1",
        "branch": "topic",
        "pull_request": "12",
        "url": "https://github.com/o/r/actions/runs/7",
    }
    gitlab = {"CI_COMMIT_SHA": "b2", "CI_COMMIT_REF_NAME": "t", "CI_MERGE_REQUEST_IID": "5"}
    assert origin.source_of(gitlab) == {"commit": "b2", "branch": "t", "pull_request": "5"}
    jenkins = {
        "GIT_COMMIT": "c3",
        "CHANGE_BRANCH": "t",
        "CHANGE_ID": "9",
        "BUILD_URL": "http://j/1",
    }
    assert origin.source_of(jenkins)["url"] == "http://j/1"
    assert "url" not in origin.source_of({"CHANGE_ID": "9", "GITHUB_REPOSITORY": "o/r"})
    assert origin.name_of(origin.source_of({})) == "From a terminal"


def test_the_command_line_needs_neither_django_nor_torch() -> None:
    heavy = "{'django', 'torch', 'orchestrator'} & set(sys.modules)"
    code = f"import sys, switchback_cli.main; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_help_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--help"]) == 0
    assert "--harness" in capsys.readouterr().out
