"""`export`, `import`, `login`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console

from switchback_cli.account import Kept, project_id, server_of
from switchback_cli.errors import CommandFailed, Ended
from switchback_cli.follow import until_end
from switchback_cli.options import Options, connect
from switchback_cli.speech import say

LINES_AT_ONCE = 1_000
LINES = (".jsonl", ".ndjson", ".txt", "")
"""Endings of files that are sent line by line; any other goes as a whole."""


def export(
    context: typer.Context,
    kind: Annotated[
        str, typer.Argument(help="run: its rollouts; rollout: its trace; project: all of it.")
    ],
    number: Annotated[int, typer.Argument(help="Its id.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File; else stdout.")
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Of a project: the files of its trainings too.")
    ] = False,
) -> None:
    """Writes the rollouts of a run with their verdicts, or the trace of one, as JSON lines; or a
    whole project as a zip file, for which the token is that of an admin.
    """
    if kind == "project":
        _export_project(context, number, output, checkpoints)
        return
    names = {"run": "runs/{}/rollouts.jsonl", "rollout": "rollouts/{}/trace.jsonl"}
    if kind not in names:
        raise CommandFailed(f"Exports a run, a rollout or a project, not {kind!r}.")
    at = connect(context)
    project = project_id(at.server, at.project)
    text = at.server.text(f"projects/{project}/{names[kind].format(number)}")
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
        say(at.console, f"{output}: {text.count(chr(10))} lines")


def _export_project(
    context: typer.Context, number: int, output: Path | None, checkpoints: bool
) -> None:
    if output is None:
        raise CommandFailed("A project is a zip file: say where by --output words.zip.")
    if output.exists():
        raise CommandFailed(f"{output} exists; name another file.")
    at = connect(context)
    asked = at.server.post(f"projects/{number}/exports", {"with_checkpoints": checkpoints})
    ended = until_end(
        at.server,
        asked["url"],
        lambda told: (told["done"], max(told["total"], told["done"]), told["doing"]),
        at.console,
    )
    if not ended["file_url"]:
        raise CommandFailed(f"The export {ended['state']}: {ended['error'] or 'no file'}.")
    size = at.server.save(ended["file_url"], output)
    say(at.console, f"{output}: {ended['done']:,} rows, {size:,} bytes")
    for name in ended["summary"].get("endpoints_without_key", ()):
        say(at.console, f"without the key of the endpoint {name!r}")


def import_(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="JSON lines of events, ATIF, a log of Inspect, …")],
) -> None:
    """Sends rollouts that ran elsewhere; what is there already is not taken twice.

    When the server is away or has too much to do, it is asked again, up to --patience.
    """
    at = connect(context)
    project = project_id(at.server, at.project)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}.") from error
    if path.suffix.lower() in LINES:
        lines = content.splitlines(keepends=True)
        address, kind = f"projects/{project}/ingest", "application/x-ndjson"
        pieces = [
            b"".join(lines[start : start + LINES_AT_ONCE])
            for start in range(0, len(lines), LINES_AT_ONCE)
        ]
    else:
        address = f"projects/{project}/traces/files?name={quote(path.name)}"
        kind, pieces = "application/octet-stream", [content]
    totals: dict[str, int] = {}
    refused: list[Any] = []
    for piece in pieces:
        outcome = at.server.send(address, piece, kind)
        for name, value in outcome.items():
            if isinstance(value, int) and not isinstance(value, bool):
                totals[name] = totals.get(name, 0) + value
            elif name == "rejected":
                refused += [item for item in value if isinstance(item, dict)]
    told = ", ".join(f"{value:,} {name}" for name, value in totals.items())
    say(at.console, told or "Nothing to send.")
    for item in refused[:10]:
        say(at.console, str(item))
    if refused:
        raise Ended(1)


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="https://… of the server.")],
) -> None:
    """Keeps the address and a token for later commands; asks for the token, or reads it from
    standard input.
    """
    options: Options = context.obj
    token = options.token or (
        typer.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    )
    server = server_of(url, token.strip(), patience=min(options.patience, 20))
    me = server.get("me")
    path = Kept(url.rstrip("/"), token.strip()).write()
    of = me["token"] or {}
    said = f"Signed in as {me['user']} ({of.get('role', '')} of project {of.get('project', '')})"
    say(Console(stderr=True), f"{said}; kept in {path}.")
