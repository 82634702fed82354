"""Four fixed files and the commands on them: ls, cat, head, grep and wc. Pure.

Commands are divided into three parts. `train`: what an agent may say, and what it is rewarded for.
`validation` chooses the checkpoint, `final` says how good it is; both are further commands on the
same files, whose outputs follow from what the training has shown, but were never shown.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

FILES = {
    "app.log": (
        "INFO start\nWARN disk full\nINFO job one\nERROR no route\nWARN slow net\nINFO stop\n"
    ),
    "todo.txt": "buy milk\ncall anna\nfix door\nread book\npay rent\n",
    "city.csv": "rome,29\noslo,7\nlima,10\ncairo,22\nquito,2\n",
    "site.ini": "host=web1\nport=8080\nmode=fast\nsize=40\n",
}
WORDS = {
    "app.log": ("INFO", "WARN", "ERROR"),
    "todo.txt": ("a", "o"),
    "city.csv": ("o", "2"),
    "site.ini": ("o", "="),
}
HEADS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Exercise:
    """What is asked, and the one command that answers it."""

    question: str
    command: str

    @property
    def output(self) -> str:
        return run(self.command)


@dataclass(frozen=True)
class Parts:
    """All exercises, each in one part."""

    train: tuple[Exercise, ...]
    validation: tuple[Exercise, ...]
    final: tuple[Exercise, ...]


def run(command: str) -> str:
    """What the command prints. ValueError for one that does not exist here."""
    match command.split():
        case ["ls"]:
            return "".join(f"{name}\n" for name in sorted(FILES))
        case ["cat", name]:
            return FILES[name]
        case ["head", "-n", count, name]:
            return "".join(FILES[name].splitlines(keepends=True)[: int(count)])
        case ["grep", word, name]:
            lines = FILES[name].splitlines(keepends=True)
            return "".join(line for line in lines if word in line)
        case ["wc", name]:
            text = FILES[name]
            return f"{text.count(chr(10))} {len(text.split())} {len(text)} {name}\n"
    raise ValueError(f"unknown command {command!r}")


def exercises() -> list[Exercise]:
    """All of them, in a fixed order."""
    found = [Exercise("list files", "ls")]
    for name in FILES:
        found.append(Exercise(f"show {name}", f"cat {name}"))
        found.append(Exercise(f"count {name}", f"wc {name}"))
        found += [Exercise(f"first {n} of {name}", f"head -n {n} {name}") for n in HEADS]
        found += [Exercise(f"find {w} in {name}", f"grep {w} {name}") for w in WORDS[name]]
    return found


def parts(seed: int, *, validation: int = 6, final: int = 6) -> Parts:
    """`ls`, `cat` and `wc` are always trained on: what they print follows from nothing else."""
    everything = exercises()
    free = [each for each in everything if each.command.split()[0] in ("head", "grep")]
    random.Random(f"parts/{seed}").shuffle(free)
    held_out = (*free[:validation], *free[validation : validation + final])
    return Parts(
        train=tuple(each for each in everything if each not in held_out),
        validation=tuple(free[:validation]),
        final=tuple(free[validation : validation + final]),
    )


def choices(exercise: Exercise, train: Sequence[Exercise], count: int, seed: int) -> list[str]:
    """The right command and `count - 1` others of the training part, in an order of their own."""
    chance = random.Random(f"choices/{seed}/{exercise.command}")
    others = [each.command for each in train if each.command != exercise.command]
    found = [exercise.command, *chance.sample(others, count - 1)]
    chance.shuffle(found)
    return found
