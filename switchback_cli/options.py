"""What every command takes: server, token, project, patience."""

from __future__ import annotations

from dataclasses import dataclass

import typer
from rich.console import Console

from switchback_cli.account import server_of
from switchback_cli.client import Server
from switchback_cli.speech import say


@dataclass(frozen=True)
class Options:
    url: str | None
    token: str | None
    project: str | None
    patience: float


@dataclass(frozen=True)
class Connection:
    server: Server
    project: str | None
    console: Console
    """For people, on standard error: standard output is for what programs read."""


def connect(context: typer.Context) -> Connection:
    """Raises CommandFailed."""
    options: Options = context.obj
    console = Console(stderr=True)

    def told(text: str) -> None:
        say(console, text, style="yellow")

    server = server_of(options.url, options.token, patience=options.patience, told=told)
    return Connection(server, options.project, console)
