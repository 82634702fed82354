"""`manage.py reproduce echo`: does ECHO do on this machine what its paper says?

Without options a world of four files and a model made on the spot, in about a minute; `--full` the
terminal environment and the bundled model, seeds by lambda, for hours, resumed where it was left.
The exit code is 1 if a claim of the small experiment does not hold; the full one asserts nothing,
since what is seen depends on the size.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from orchestrator.environments.sandbox import detect
from orchestrator.reproduction import pictures, quick, results
from orchestrator.reproduction.cells import LAMBDAS, SEEDS, SIZES, Size, grid
from orchestrator.reproduction.grid import CellFailed, Setting, read_results, run_grid
from training.reproduction.claims import Outcome, claims, outcome


class Command(BaseCommand):
    help = "Repeat ECHO's experiment and say which of its claims are seen."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("experiment", choices=("echo",))
        parser.add_argument("--seed", type=int, default=0, help="of the small experiment")
        parser.add_argument("--json", type=Path, help="file for the small experiment's lines")
        parser.add_argument("--full", action="store_true", help="terminal tasks, bundled model")
        parser.add_argument("--size", choices=tuple(SIZES), default="full", help="of the full one")
        parser.add_argument("--seeds", type=_numbers(int), default=list(SEEDS))
        parser.add_argument("--lambdas", type=_numbers(float), default=list(LAMBDAS))
        parser.add_argument("--out", type=Path, help="folder of results, pictures and jobs")
        parser.add_argument("--threads", type=int, default=2, help="of trainer and model server")
        parser.add_argument("--report", action="store_true", help="only read what is there")

    def handle(self, *args: Any, **options: Any) -> None:
        # SIGTERM ends the command as Ctrl-C does, so that its children end too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        console = Console(highlight=False, soft_wrap=True, file=self.stdout)  # type: ignore[arg-type]
        try:
            if options["full"]:
                self._full(console, **options)
            else:
                self._small(console, **options)
        except KeyboardInterrupt:
            raise CommandError("Stopped. The same command goes on where it was.") from None

    def _small(self, console: Console, *, seed: int, json: Path | None, **rest: Any) -> None:
        started = time.monotonic()
        console.print("A model of 0.5 million weights in a world of four files: GRPO and ECHO.")
        try:
            found = quick.run_quick(seed=seed)
        except quick.ExperimentFailed as error:
            raise CommandError(str(error)) from error
        if json is not None:
            json.write_text(_lines(line for value in found.values() for line in value))
        grpo, echo = (outcome(found[value]) for value in quick.VALUES)
        console.print(_small_table(grpo, echo))
        stated = claims(grpo, echo)
        for claim in stated:
            console.print(f"{'seen' if claim.holds else 'NOT SEEN'}: {claim.sentence}")
        console.print(f"{time.monotonic() - started:.0f} s")
        if not all(claim.holds for claim in stated):
            raise CommandError("Not everything that ECHO claims was seen.")

    def _full(
        self, console: Console, *, size: str, report: bool, out: Path | None, **options: Any
    ) -> None:
        chosen = SIZES[size]
        out = out or Path(settings.DATA_DIR) / "reproduction" / size
        lines = read_results(out, chosen) if report else self._run(chosen, out, **options)
        if not lines:
            raise CommandError(f"{out / 'results.jsonl'}: no results of the size {size}")
        summary = results.summary(lines)
        for row in results.table(summary):
            console.print("  ".join(f"{cell:>15}" for cell in row))
        for sentence in results.sentences(summary):
            console.print(f"- {sentence}")
        for path in pictures.draw(lines, out):
            console.print(str(path))

    def _run(
        self,
        size: Size,
        out: Path,
        *,
        seeds: list[int],
        lambdas: list[float],
        threads: int,
        **rest: Any,
    ) -> list[dict[str, Any]]:
        isolation = detect()
        if not isolation.available:
            raise CommandError(f"{isolation.reason}\n{isolation.hint}")
        model = Path(settings.MODEL_DIR)
        if not (model / "config.json").exists():
            raise CommandError(f"{model}: no model; `manage.py demo` prepares it")
        setting = Setting(
            out=out.resolve(),
            model=model,
            examples=Path(settings.BASE_DIR) / "examples",
            size=size,
            threads=threads,
        )
        try:
            return run_grid(setting, grid(seeds, lambdas), self.stdout.write)
        except CellFailed as error:
            raise CommandError(str(error)) from error


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def numbers(text: str) -> list[Any]:
        return [kind(each) for each in text.split(",")]

    return numbers


def _lines(records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _small_table(grpo: Outcome, echo: Outcome) -> Table:
    table = Table(box=None)
    table.add_column("")
    for name in ("GRPO", "ECHO"):
        table.add_column(name, justify="right")
    rows: list[tuple[str, Callable[[Outcome], str]]] = [
        ("surprise at held-out outputs before training", lambda o: f"{o.start:.3f}"),
        ("… at the step chosen on other outputs", lambda o: f"{o.chosen:.3f}"),
        ("    which is step", lambda o: str(o.chosen_step)),
        ("… after the last step", lambda o: f"{o.last:.3f}"),
        ("reward, first tenth of the steps", lambda o: f"{o.first_reward:.2f}"),
        ("reward, last quarter", lambda o: f"{o.last_reward:.2f}"),
        ("groups without an advantage", lambda o: f"{o.zero_advantage_share:.0%}"),
        ("trained tokens that the world said", lambda o: f"{o.observation_share:.0%}"),
    ]
    for name, say in rows:
        table.add_row(name, say(grpo), say(echo))
    return table
