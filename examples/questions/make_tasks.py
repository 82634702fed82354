"""Writes `tasks.jsonl`: six families of questions, 11 of each, from a seed.

    .venv/bin/python examples/questions/make_tasks.py

The questions are such that a model of 135 million parameters answers some. What a family compares
follows how models answer: a capital may stand in a sentence, a sum may follow its calculation, a
letter must be named alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEED = 11
PER_FAMILY = {"train": 5, "select": 3, "test": 3}

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin",
    "Japan": "Tokyo", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo",
    "Norway": "Oslo", "China": "Beijing", "England": "London", "Ireland": "Dublin",
}  # fmt: skip
OPPOSITES = {
    "hot": ("cold",), "up": ("down",), "big": ("small", "little"), "day": ("night",),
    "left": ("right",), "open": ("closed", "close", "shut"), "fast": ("slow",),
    "happy": ("sad", "unhappy"), "light": ("dark", "heavy"), "wet": ("dry",),
    "early": ("late",), "old": ("young", "new"),
}  # fmt: skip
KINDS = {
    "animal": ("dog", "cat", "horse", "cow", "lion"),
    "color": ("red", "blue", "green", "yellow", "black"),
    "fruit": ("apple", "banana", "pear", "grape", "lemon"),
    "number": ("one", "two", "three", "seven", "ten"),
}
WORDS = ("apple", "river", "stone", "garden", "winter", "music", "kitchen", "yellow", "open",
         "train", "bread", "lamp")  # fmt: skip

Item = dict[str, Any]


def capitals(rng: random.Random) -> list[Item]:
    found = [
        {
            "prompt": f"What is the capital of {country}?",
            "answers": [capital],
            "match": "contains",
            "ignore": ["case"],
        }
        for country, capital in CAPITALS.items()
    ]
    return rng.sample(found, len(found))


def opposites(rng: random.Random) -> list[Item]:
    found = [
        {
            "prompt": f"What is the opposite of {word}?",
            "answers": list(answers),
            "match": "contains",
            "ignore": ["case"],
        }
        for word, answers in OPPOSITES.items()
    ]
    return rng.sample(found, len(found))


def sums(rng: random.Random) -> list[Item]:
    pairs = rng.sample([(a, b) for a in range(1, 10) for b in range(1, 10)], 11)
    return [
        {
            "prompt": f"What is {a} + {b}?",
            "answers": [str(a + b)],
            "match": "number",
            "take": "last",
        }
        for a, b in pairs
    ]


def sequences(rng: random.Random) -> list[Item]:
    starts = rng.sample([(first, step) for first in range(1, 9) for step in (1, 2, 5, 10)], 11)
    return [
        {
            "prompt": "Which number comes next? "
            + ", ".join(str(first + step * i) for i in range(4)),
            "answers": [str(first + step * 4)],
            "match": "number",
            "take": "last",
        }
        for first, step in starts
    ]


def choices(rng: random.Random) -> list[Item]:
    found: list[Item] = []
    while len(found) < 11:
        kind = rng.choice(list(KINDS))
        others = rng.sample([other for other in KINDS if other != kind], 2)
        words = [rng.choice(KINDS[name]) for name in (kind, *others)]
        order = rng.sample(range(3), 3)
        lines = [f"{letter}) {words[i]}" for letter, i in zip("ABC", order, strict=True)]
        article = "an" if kind == "animal" else "a"
        question = f"Which one is {article} {kind}? Answer with the letter."
        item = {
            "prompt": "\n".join([question, *lines]),
            "answers": ["ABC"[order.index(0)]],
            "match": "choice",
        }
        if item not in found:
            found.append(item)
    return found


def first_letters(rng: random.Random) -> list[Item]:
    return [
        {
            "prompt": f"What is the first letter of the word {word}?",
            "answers": [word[0]],
            "match": "exact",
            "ignore": ["case", "punctuation"],
        }
        for word in rng.sample(WORDS, 11)
    ]


FAMILIES: dict[str, Callable[[random.Random], list[Item]]] = {
    "capital": capitals,
    "opposite": opposites,
    "sum": sums,
    "sequence": sequences,
    "choice": choices,
    "first-letter": first_letters,
}


def tasks(seed: int = SEED) -> list[Item]:
    """Families alternate, so that every prefix of a split is balanced."""
    found: list[Item] = []
    drawn = {name: make(random.Random(f"{seed}/{name}")) for name, make in FAMILIES.items()}
    for split, count in PER_FAMILY.items():
        number = 0
        for _ in range(count):
            for family, items in drawn.items():
                number += 1
                item = {
                    "key": f"{split}-{number:02d}",
                    "split": split,
                    "group": family,
                    **items.pop(0),
                }
                if split == "train":
                    content = item["answers"][0]
                    item["reference"] = [{"role": "assistant", "content": content}]
                found.append(item)
    return found


def main() -> None:
    lines = [json.dumps(task, ensure_ascii=False) + "\n" for task in tasks()]
    Path(__file__).with_name("tasks.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
