"""Exercises for the terminal environment, produced from a seed.

A task is a folder of one to three short text files and a question on one of them that a single
well-known command answers. Families alternate by index, so that every prefix of a split is
balanced. Content hangs on (seed, split, index, attempt) alone: the same seed gives the same tasks,
and raising a count keeps the earlier ones. No two tasks of a set share question, files and answer,
across splits too.

Train tasks carry an author's transcript. The author's command is executed for real when the task
is made, and the answer must be found in what it printed; so a transcript can never disagree with
the environment. Commands of authors are fixed templates over generated names, hence run without a
sandbox. Selection and test tasks carry none.

Sizes and wording follow what a model of 135 million parameters can do: few short lines of common
words, and requests of the form `notes.txt: first line`. With the same requests as whole questions
it solved 31 % of the tasks after three demonstrations and 43 % after ten, in this form 80 % after
fifteen (greedy, 30 to 42 tasks).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.environments.terminal.observation import segments_of, text_of
from orchestrator.environments.terminal.spec import Match, Split, TaskSpec, is_correct

SPLITS: tuple[Split, ...] = ("train", "select", "test")
DEMO_COUNTS: dict[str, int] = {"train": 120, "select": 60, "test": 60}
FULL_COUNTS: dict[str, int] = {"train": 400, "select": 200, "test": 300}
ANSWER_PREFIX = "answer:"


# --- building blocks -----------------------------------------------------------------------------

_WORD_LIST = """
    apple bird blue boat book bread bridge brown cake calm cat chair city clean cloud coat cold
    corn cup dark day deep desk dog door dry duck early east farm fast field fire fish flag
    floor flower fox fresh garden glass gold good grass green hand happy hat hill home horse
    house ice island kind king lake lamp large leaf light lion long milk moon morning mountain
    music new night north ocean old orange paper park pen pink plane plant plate quick quiet
    rain red rice ring river road rock room rose salt sand school sea seven shoe shop silver
    small snow soft song south star stone street strong summer sun table tall tea ten tiger
    tower town train tree valley village wall warm water west wheel white wide wind window
    winter wolf wood yellow young
"""
WORDS = tuple(_WORD_LIST.split())
NOTES_FILES = ("notes.txt", "todo.txt", "list.txt", "ideas.txt", "diary.txt")
LOG_FILES = ("app.log", "web.log", "server.log", "mail.log")
CSV_FILES = ("sales.csv", "orders.csv", "stock.csv", "costs.csv")
INI_FILES = ("config.ini", "app.ini", "site.ini", "user.ini")
LOG_TEXTS = (
    "disk full",
    "file missing",
    "user login",
    "user logout",
    "page loaded",
    "backup done",
    "cache cleared",
    "network slow",
    "job started",
    "job stopped",
)
INI_KEYS = ("port", "host", "color", "size", "speed", "mode", "level", "limit", "theme", "city")


@dataclass(frozen=True)
class _Draft:
    """A question on one file, before it gets a key and company."""

    name: str
    content: str
    question: str
    answer: str
    match: Match
    command: str
    pick: Callable[[str], str] = field(default=lambda output: output)
    """Finds the answer in the command's output."""


def _lines(rng: random.Random, n: int) -> list[str]:
    """`n` lines of three or four words with distinct first words, none a prefix of another."""
    firsts: list[str] = []
    while len(firsts) < n:
        word = rng.choice(WORDS)
        if not any(word.startswith(f) or f.startswith(word) for f in firsts):
            firsts.append(word)
    return [" ".join([first, *rng.sample(WORDS, rng.randint(2, 3))]) for first in firsts]


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _notes(rng: random.Random) -> tuple[str, list[str]]:
    return rng.choice(NOTES_FILES), _lines(rng, rng.randint(4, 12))


def _log(rng: random.Random, n_errors: int | None = None) -> tuple[str, list[str]]:
    n = rng.randint(4, 12)
    errors = set(rng.sample(range(n), n_errors or rng.randint(1, min(6, n))))
    minute = rng.randint(0, 30)
    lines = []
    for i in range(n):
        level = "ERROR" if i in errors else rng.choice(("INFO", "WARN"))
        lines.append(f"10:{minute + i:02d} {level} {rng.choice(LOG_TEXTS)}")
    return rng.choice(LOG_FILES), lines


def _csv(rng: random.Random) -> tuple[str, list[str], list[int]]:
    items = rng.sample(WORDS, rng.randint(3, 8))
    amounts = [rng.randint(1, 20) for _ in items]
    rows = [f"{item},{amount}" for item, amount in zip(items, amounts, strict=True)]
    return rng.choice(CSV_FILES), ["item,amount", *rows], amounts


def _ini(rng: random.Random) -> tuple[str, list[str], dict[str, str]]:
    keys = rng.sample(INI_KEYS, rng.randint(3, 7))
    values = {
        key: str(rng.randint(2, 99)) if rng.random() < 0.5 else rng.choice(WORDS) for key in keys
    }
    return rng.choice(INI_FILES), ["[main]", *(f"{k}={v}" for k, v in values.items())], values


# --- families ------------------------------------------------------------------------------------


def _count_lines(rng: random.Random) -> _Draft:
    name, lines = _notes(rng)
    return _Draft(
        name,
        _text(lines),
        "number of lines",
        str(len(lines)),
        "number",
        f"wc -l {name}",
        lambda output: output.split()[0],
    )


def _first_line(rng: random.Random) -> _Draft:
    name, lines = _notes(rng)
    return _Draft(name, _text(lines), "first line", lines[0], "exact", f"head -n 1 {name}")


def _last_line(rng: random.Random) -> _Draft:
    name, lines = _notes(rng)
    return _Draft(name, _text(lines), "last line", lines[-1], "exact", f"tail -n 1 {name}")


def _look_up(rng: random.Random) -> _Draft:
    name, lines = _notes(rng)
    line = rng.choice(lines)
    word = line.split()[0]
    question = f"line that starts with {word}"
    return _Draft(name, _text(lines), question, line, "exact", f"grep ^{word} {name}")


def _sum_column(rng: random.Random) -> _Draft:
    name, lines, amounts = _csv(rng)
    return _Draft(
        name,
        _text(lines),
        "sum of amounts",
        str(sum(amounts)),
        "number",
        "awk -F, '{s+=$2} END {print s}' " + name,
    )


def _count_errors(rng: random.Random) -> _Draft:
    name, lines = _log(rng)
    n = sum("ERROR" in line for line in lines)
    question = "number of ERROR lines"
    return _Draft(name, _text(lines), question, str(n), "number", f"grep -c ERROR {name}")


def _ini_value(rng: random.Random) -> _Draft:
    name, lines, values = _ini(rng)
    key = rng.choice(list(values))
    return _Draft(
        name,
        _text(lines),
        f"value of {key}",
        values[key],
        "exact",
        f"grep ^{key} {name}",
        lambda output: output.split("=", 1)[1],
    )


FAMILIES: dict[str, Callable[[random.Random], _Draft]] = {
    "count_lines": _count_lines,
    "first_line": _first_line,
    "look_up": _look_up,
    "last_line": _last_line,
    "count_errors": _count_errors,
    "ini_value": _ini_value,
    "sum_column": _sum_column,
}


def _company(rng: random.Random, name: str) -> dict[str, str]:
    """Up to two further files of other names: the question names its file, `cat *` misleads."""
    makers: list[Callable[[random.Random], tuple[str, list[str]]]] = [
        _notes,
        _log,
        lambda r: _csv(r)[:2],
        lambda r: _ini(r)[:2],
    ]
    files: dict[str, str] = {}
    for make in rng.sample(makers, rng.randint(0, 2)):
        other, lines = make(rng)
        if other != name:
            files[other] = _text(lines)
    return files


# --- generation ----------------------------------------------------------------------------------


def generate(seed: int, counts: Mapping[str, int] | None = None) -> list[TaskSpec]:
    """All tasks of a set, train first. Deterministic in `seed`; see the module's text.

    Executes the train split's reference commands (about 3 ms each). `RuntimeError` if a command
    does not print its answer: `bash`, `awk`, `grep` and the core utilities are needed.
    """
    counts = DEMO_COUNTS if counts is None else counts
    seen: set[str] = set()
    tasks: list[TaskSpec] = []
    families = list(FAMILIES)
    for split in SPLITS:
        for index in range(counts.get(split, 0)):
            family = families[index % len(families)]
            for attempt in range(1000):
                rng = random.Random(f"{seed}/{split}/{index}/{attempt}")
                task, draft = _build(rng, split, index, family)
                if task.content_hash not in seen:
                    break
            else:
                raise RuntimeError(f"family {family} has too few different tasks")
            seen.add(task.content_hash)
            if split == "train":
                task = _with_reference(task, draft)
            tasks.append(task)
    return tasks


def _build(rng: random.Random, split: Split, index: int, family: str) -> tuple[TaskSpec, _Draft]:
    draft = FAMILIES[family](rng)
    files = {draft.name: draft.content, **_company(rng, draft.name)}
    task = TaskSpec(
        key=f"{split}-{index + 1:04d}",
        split=split,
        family=family,
        prompt=f"{draft.name}: {draft.question}",
        files=dict(sorted(files.items())),
        answer=draft.answer,
        match=draft.match,
    )
    return task, draft


def _with_reference(task: TaskSpec, draft: _Draft) -> TaskSpec:
    """The task with its author's transcript, its command executed."""
    output, exit_status = _execute(draft.command, task.files)
    answer = draft.pick(output.decode().strip()) if output else ""
    if exit_status != 0 or not is_correct(task, answer):
        raise RuntimeError(
            f"{task.key}: `{draft.command}` printed {output!r} (exit status {exit_status}); "
            f"the answer should be {task.answer!r}"
        )
    reply = text_of(segments_of(output, exit_status=exit_status))
    messages = (
        {"role": "assistant", "content": draft.command},
        {"role": "user", "content": reply},
        {"role": "assistant", "content": f"{ANSWER_PREFIX} {answer}"},
    )
    return TaskSpec.from_json({**task.as_json(), "reference": messages})


def _execute(command: str, files: Mapping[str, str]) -> tuple[bytes, int]:
    with tempfile.TemporaryDirectory(prefix="switchback-author-") as folder:
        write_files(Path(folder), files)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            timeout=10,
            check=False,
        )
    return done.stdout, done.returncode


_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Create the files in `folder`. `ValueError` for a name that is not plain."""
    for name, content in files.items():
        if not _PLAIN_NAME.fullmatch(name):
            raise ValueError(f"file name {name!r} is not plain (letters, digits, . _ -)")
        (folder / name).write_text(content, encoding="utf-8")


# --- files of tasks ------------------------------------------------------------------------------


def dump_jsonl(tasks: Sequence[TaskSpec], path: Path) -> None:
    """One task a line, for the server's `--tasks`. Appears whole or not at all.

    Holds the answers: readable for its owner alone.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps(task.as_json(), ensure_ascii=False) + "\n")
    partial.replace(path)


def load_jsonl(path: Path) -> list[TaskSpec]:
    """Inverse of `dump_jsonl`. `ValueError` names the line that does not fit."""
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            tasks.append(TaskSpec.from_json(json.loads(line)))
        except ValueError as exc:
            raise ValueError(f"{path}, line {number}: {exc}") from exc
    return tasks


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.environments.terminal.tasks",
        description="Write terminal tasks as JSON lines.",
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--full", action="store_true", help="400/200/300 instead of 120/60/60")
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=int, help=f"number of {split} tasks")
    args = parser.parse_args(argv)
    counts = dict(FULL_COUNTS if args.full else DEMO_COUNTS)
    for split in SPLITS:
        if getattr(args, split) is not None:
            counts[split] = getattr(args, split)
    tasks = generate(args.seed, counts)
    dump_jsonl(tasks, args.out)
    print(f"{len(tasks)} tasks written to {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
