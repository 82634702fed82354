"""The commands, and what becomes of an error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from switchback_cli import comment, data, gate, selftest, work
from switchback_cli.errors import INFRASTRUCTURE, CommandFailed, Ended
from switchback_cli.options import Options
from switchback_cli.speech import say

INTERRUPTED = 130
app = typer.Typer(
    name="switchback",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Runs, gates, climbs and trainings of a Switchback server.",
)


@app.callback()
def common(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="SWITCHBACK_URL", help="The server.")] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="SWITCHBACK_TOKEN", help="Better in the environment than here."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(envvar="SWITCHBACK_PROJECT", help="Id or name; else that of the token."),
    ] = None,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for a server that is away.")
    ] = 600.0,
) -> None:
    context.obj = Options(url, token, project, patience)


app.command()(gate.gate)
app.command()(comment.comment)
app.command()(work.run)
app.command()(work.climb)
app.command()(work.train)
app.command()(work.tail)
app.command()(data.export)
app.command("import")(data.import_)
app.command()(data.login)
app.command()(selftest.selftest)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code. 1 and 2 are words on a change, so wrong arguments are 3 as well."""
    try:
        app(list(sys.argv[1:] if arguments is None else arguments))
    except Ended as ended:
        return ended.code
    except CommandFailed as failed:
        say(Console(stderr=True), str(failed), style="red")
        return INFRASTRUCTURE
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:
        # Of typer itself: 0 for help, 2 for what it does not understand, 1 when interrupted.
        return 0 if not ended.code else INTERRUPTED if ended.code == 1 else INFRASTRUCTURE
    return 0


def entry() -> None:
    """Of the installed command."""
    sys.exit(main())
