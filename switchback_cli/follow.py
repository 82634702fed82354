"""Waiting for work to end: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from switchback_cli.client import Server
from switchback_cli.errors import CommandFailed
from switchback_cli.speech import say

EVERY_S = 1.0
Told = Mapping[str, Any]
Measure = Callable[[Told], tuple[int, int, str]]
"""Of an answer: how much is done, of how much, and what it is at."""


def until_end(
    server: Server,
    url: str,
    measure: Measure,
    console: Console,
    *,
    limit_s: float | None = None,
    every_s: float = EVERY_S,
) -> dict[str, Any]:
    """The answer once its work has ended. Raises CommandFailed after `limit_s`."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    shown = _Bar(console) if console.is_terminal else _Lines(console)
    with shown as show:
        while True:
            answer: dict[str, Any] = server.get(url)
            show(*measure(answer))
            if answer["has_ended"]:
                return answer
            if deadline is not None and time.monotonic() >= deadline:
                raise CommandFailed(
                    f"Not decided after {limit_s:.0f} seconds; it goes on at {answer['html_url']}."
                )
            server.pause(every_s)


class _Bar(AbstractContextManager[Callable[[int, int, str], None]]):
    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Callable[[int, int, str], None]:
        self._progress.start()
        task = self._progress.add_task("", total=None)

        def show(done: int, of: int, doing: str) -> None:
            self._progress.update(task, completed=done, total=of, description=doing)

        return show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class _Lines(nullcontext[Callable[[int, int, str], None]]):
    """One line for each tenth, or when it comes to something else."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[int, str] | None = None
        super().__init__(self._show)

    def _show(self, done: int, of: int, doing: str) -> None:
        now = (10 * done // max(1, of), doing)
        if now != self._last:
            self._last = now
            say(self._console, f"{doing}: {done} of {of}")
