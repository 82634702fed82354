"""`run`, `climb`, `train`, `tail`: starts work or joins it, and waits for its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from switchback_cli import harness as harnesses
from switchback_cli.account import project_id
from switchback_cli.client import Server
from switchback_cli.errors import CommandFailed, Ended
from switchback_cli.follow import EVERY_S, until_end
from switchback_cli.options import Connection, connect
from switchback_cli.speech import say

FAILED = 1
GOOD = frozenset({"completed", "decided"})
KINDS = {
    "run": "runs",
    "rollout": "rollouts",
    "search": "searches",
    "climb": "climbs",
    "training": "trainings",
    "gate": "gates",
}

EnvironmentOption = Annotated[str, typer.Option(help="Slug of the environment.")]
RubricOption = Annotated[str, typer.Option(help="Name or id of the rubric.")]
ModelOption = Annotated[str, typer.Option(help="Name or id of the model.")]
HarnessOption = Annotated[
    str | None, typer.Option(help="Folder, or id of one kept; none: one that adds nothing.")
]
SettingsOption = Annotated[Path | None, typer.Option(help="File with settings as JSON.")]
KeyOption = Annotated[str | None, typer.Option(help="Idempotency key.", envvar="SWITCHBACK_KEY")]
JsonOption = Annotated[bool, typer.Option("--json", help="The answer on standard output.")]
WaitOption = Annotated[bool, typer.Option(help="Until it has ended.")]
NameOption = Annotated[str, typer.Option(help="For people.")]


def run(
    context: typer.Context,
    environment: EnvironmentOption,
    rubric: RubricOption,
    model: ModelOption,
    harness: HarnessOption = None,
    split: Annotated[str, typer.Option(help="train or select.")] = "select",
    n_tasks: Annotated[int | None, typer.Option(help="The first so many tasks.")] = None,
    replicates: Annotated[int, typer.Option(help="Rollouts of each task.")] = 1,
    concurrency: Annotated[int, typer.Option(help="Rollouts at a time.")] = 32,
    name: NameOption = "",
    key: KeyOption = None,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Runs a harness on tasks: exit code 0 when enough of it is scored, 1 when it failed or was
    cancelled, 3 when too little could be scored.
    """
    at = connect(context)
    project = project_id(at.server, at.project)
    body = {
        **_work_on(at.server, project, environment, rubric, model, harness),
        "split": split,
        "replicates": replicates,
        "concurrency": concurrency,
        "label": name,
        **({"n_tasks": n_tasks} if n_tasks is not None else {}),
    }
    _start(at, project, "runs", body, key, wait, as_json)


def climb(
    context: typer.Context,
    environment: EnvironmentOption,
    rubric: RubricOption,
    model: ModelOption,
    harness: HarnessOption = None,
    name: NameOption = "",
    settings: SettingsOption = None,
    key: KeyOption = None,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Starts a climb: baseline, better harness, trained weights."""
    at = connect(context)
    project = project_id(at.server, at.project)
    body = _work_on(at.server, project, environment, rubric, model, harness)
    body |= {"name": name or "From a terminal", "settings": _settings(settings)}
    _start(at, project, "climbs", body, key, wait, as_json)


def train(
    context: typer.Context,
    environment: EnvironmentOption,
    rubric: RubricOption,
    model: ModelOption,
    harness: HarnessOption = None,
    name: NameOption = "",
    settings: SettingsOption = None,
    seed: Annotated[int, typer.Option()] = 0,
    key: KeyOption = None,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Trains weights with ECHO."""
    at = connect(context)
    project = project_id(at.server, at.project)
    body = _work_on(at.server, project, environment, rubric, model, harness)
    body |= {"name": name, "settings": _settings(settings), "seed": seed}
    _start(at, project, "trainings", body, key, wait, as_json)


def tail(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")],
    number: Annotated[int, typer.Argument(help="Its id.")],
    after: Annotated[int, typer.Option(help="The last sequence that you have.")] = 0,
    follow: Annotated[bool, typer.Option(help="Until the work has ended.")] = True,
) -> None:
    """Prints the events of a piece of work as JSON lines, each once, through restarts."""
    if kind not in KINDS:
        raise CommandFailed(f"There are no events of {kind!r}; known are {', '.join(KINDS)}.")
    at = connect(context)
    project = project_id(at.server, at.project)
    path = f"projects/{project}/{KINDS[kind]}/{number}/events"
    while True:
        answer = at.server.get(path, after=after)
        for event in answer["events"]:
            sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
        is_last = answer["has_ended"] and not answer["events"]
        after = answer["head"]
        if is_last or not (follow or answer["events"]):
            return
        if not answer["events"]:
            at.server.pause(EVERY_S)


def _start(
    at: Connection,
    project: int,
    kind: str,
    body: Mapping[str, Any],
    key: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    answer = at.server.post(f"projects/{project}/{kind}", body, key=key)
    say(at.console, answer["html_url"])
    if wait:
        answer = until_end(at.server, answer["url"], _measure, at.console)
    if as_json:
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    if not wait:
        return
    state = str(answer["state"])
    say(at.console, f"{state} {answer.get('claim') or answer.get('error') or ''}".strip(),
                     style="bold")  # fmt: skip
    if state == "completed_unscored":
        raise CommandFailed("Too few rollouts could be scored.")
    if state not in GOOD:
        raise Ended(FAILED)


def _measure(answer: Mapping[str, Any]) -> tuple[int, int, str]:
    """Of whatever kind it is."""
    state = str(answer["state"])
    if "rollouts" in answer:
        tally = answer["rollouts"]
        ended = ("scored", "errored", "not_applicable", "cancelled")
        return sum(tally[name] for name in ended), tally["planned"], state
    if "total_steps" in answer:
        return answer["step"], answer["total_steps"], f"{state}, steps"
    rungs = answer.get("rungs") or []
    share = sum(rung["progress"] for rung in rungs) / max(1, len(rungs))
    return round(100 * share), 100, f"{state}, {answer.get('phase', '')}"


def _work_on(
    server: Server, project: int, environment: str, rubric: str, model: str, harness: str | None
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "environment": environment,
        "rubric": _id_of(server, project, "rubrics", rubric),
        "model": _id_of(server, project, "models", model),
    }
    if harness is not None:
        body["harness"] = _harness(server, project, harness)
    return body


def _harness(server: Server, project: int, told: str) -> int:
    source = harnesses.source_of(told)
    if "files" in source:
        return int(server.post(f"projects/{project}/harnesses", source)["id"])
    if told.isdecimal():
        return int(told)
    raise CommandFailed(f"{told}: give the folder of a harness, or the id of one that is kept.")


def _id_of(server: Server, project: int, kind: str, told: str) -> int:
    """By name, else by id. Raises CommandFailed."""
    cursor = ""
    names = []
    while True:
        query = {"cursor": cursor} if cursor else {}
        page = server.get(f"projects/{project}/{kind}", limit=200, **query)
        for item in page["items"]:
            if item["name"] == told:
                return int(item["id"])
            names.append(item["name"])
        cursor = page["cursor"]
        if not cursor:
            break
    if told.isdecimal():
        return int(told)
    raise CommandFailed(f"There is no {told!r} among the {kind}: {', '.join(names[:20])}.")


def _settings(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{path}: {error}") from error
    if not isinstance(told, dict):
        raise CommandFailed(f"{path}: accepts a JSON object.")
    return told
