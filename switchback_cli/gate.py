"""`switchback gate`: asks whether a change is better, waits, reports, exits with the verdict."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from switchback_cli import harness, origin, reports
from switchback_cli.account import project_id
from switchback_cli.errors import EXIT_CODES, INFRASTRUCTURE, CommandFailed, Ended
from switchback_cli.follow import until_end
from switchback_cli.options import Connection, connect
from switchback_cli.speech import say


def gate(
    context: typer.Context,
    environment: Annotated[str, typer.Option(help="Slug of the environment.")],
    rubric: Annotated[str, typer.Option(help="Name or id of the rubric.")],
    model: Annotated[str, typer.Option(help="Name or id of the model.")],
    change: Annotated[
        str, typer.Option("--harness", help="The change: folder, zip file, or h_… of one kept.")
    ],
    baseline: Annotated[
        str, typer.Option(help="Folder, zip file, h_…, or `released`: what the project uses.")
    ] = "released",
    baseline_model: Annotated[str | None, typer.Option(help="If it is another one.")] = None,
    name: Annotated[str | None, typer.Option(help="For people, as a pull request's title.")] = None,
    split: Annotated[str, typer.Option(help="train, select, or the sealed test.")] = "select",
    n_tasks: Annotated[int | None, typer.Option(help="The first so many tasks.")] = None,
    metric: Annotated[str | None, typer.Option(help="score, reward or criterion:ID.")] = None,
    margin: Annotated[float | None, typer.Option(help="Differences up to it are no news.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Probability of a wrong verdict.")] = None,
    power: Annotated[float | None, typer.Option(help="Of what it says it needs.")] = None,
    effect: Annotated[
        float | None, typer.Option(help="The smallest difference that matters.")
    ] = None,
    rollouts: Annotated[int | None, typer.Option(help="At most, both sides together.")] = None,
    usd: Annotated[float | None, typer.Option(help="At most.")] = None,
    coverage: Annotated[float | None, typer.Option(help="Share of pairs that need scores.")] = None,
    require: Annotated[
        list[str] | None, typer.Option(help="Id of a criterion that must always be met.")
    ] = None,
    task_floor: Annotated[
        float | None, typer.Option(help="Mean that each task must reach.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(help="Verdict that passes too, for example inconclusive: exit code 0."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Idempotency key: the same again gets the same gate.", envvar="SWITCHBACK_KEY"
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Writes JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Writes a comment here.")] = None,
    label: Annotated[str, typer.Option(help="Tells several gates of one request apart.")] = "",
    output: Annotated[Path | None, typer.Option("--json", help="`-`: standard output.")] = None,
    wait: Annotated[bool, typer.Option(help="Until there is a verdict.")] = True,
    minutes: Annotated[
        float | None, typer.Option(help="To wait at most; then exit code 3.")
    ] = None,
) -> None:
    """Decides whether a changed harness is better: exit code 0 better, 1 regressed,
    2 inconclusive, 3 infrastructure.
    """
    accepted = {"better", *(accept or ())}
    if unknown := accepted - EXIT_CODES.keys():
        raise CommandFailed(f"--accept takes {', '.join(EXIT_CODES)}, not {', '.join(unknown)}.")
    files = Files(junit, markdown, output, label)
    source = origin.source_of(os.environ)
    title = name or origin.name_of(source)
    policy = {
        "metric": metric,
        "margin": margin,
        "alpha": alpha,
        "power": power,
        "effect": effect,
        "rollouts": rollouts,
        "usd": usd,
        "coverage": coverage,
        "required": require or None,
        "task_floor": task_floor,
    }
    try:
        connection = connect(context)
        body = _given(
            name=title,
            environment=environment,
            rubric=rubric,
            model=model,
            harness=harness.source_of(change),
            baseline=harness.source_of(baseline),
            baseline_model=baseline_model,
            split=split,
            n_tasks=n_tasks,
            policy=_given(**policy),
            source=source,
        )
        answer = _asked(connection, body, key)
        if not wait:
            files.write_answer(answer)
            return
        limit = None if minutes is None else 60 * minutes
        server, console = connection.server, connection.console
        answer = until_end(server, answer["url"], _measure, console, limit_s=limit)
    except CommandFailed as failed:
        # Whoever reads the pull request must see that nothing was decided.
        files.write_failure(title, str(failed))
        raise
    files.write(answer, is_accepted=answer["verdict"] in accepted)
    say(console, reports.claim(answer), style="bold")
    for line in filter(None, (answer["sentence"], reports.wants(answer))):
        say(console, line)
    if answer["verdict"] not in accepted:
        raise Ended(EXIT_CODES.get(answer["verdict"], INFRASTRUCTURE))


@dataclass(frozen=True)
class Files:
    """Where reports go."""

    junit: Path | None
    markdown: Path | None
    output: Path | None
    label: str

    def write(self, gate: Mapping[str, Any], *, is_accepted: bool) -> None:
        _write(self.junit, reports.junit(gate, accepted=is_accepted))
        _write(self.markdown, reports.markdown(gate, label=self.label))
        self.write_answer(gate)

    def write_answer(self, gate: Mapping[str, Any]) -> None:
        _write(self.output, json.dumps(gate, indent=2) + "\n")

    def write_failure(self, name: str, text: str) -> None:
        _write(self.junit, reports.failed_junit(name, text))
        _write(self.markdown, reports.failed_markdown(text, label=self.label))


def _asked(connection: Connection, body: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    server = connection.server
    project = project_id(server, connection.project)
    answer: dict[str, Any] = server.post(f"projects/{project}/gates", body, key=key)
    say(connection.console, f"Gate {answer['id']}: {answer['html_url']}")
    return answer


def _measure(gate: Mapping[str, Any]) -> tuple[int, int, str]:
    spent, looks = gate["spent"], gate["decisions"]
    doing = f"Look {len(looks) + 1} of {len(gate['looks'])}"
    if gate["has_ended"]:
        doing = "Rollouts"
    elif gate["state"] == "queued":
        doing = "Waits for a worker"
    return spent["rollouts"], spent["most_rollouts"], doing


def _write(path: Path | None, text: str) -> None:
    if path is None:
        return
    if str(path) == "-":
        sys.stdout.write(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
