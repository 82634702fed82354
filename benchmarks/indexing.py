"""What the full-text index costs an append: the same batches with it and without, alternating."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from statistics import median
from typing import Any
from unittest import mock

from benchmarks.figures import Figure
from benchmarks.stack import use_temporary_data

BATCHES, EVENTS, CHARACTERS = 200, 50, 1_000
SEED = 11


def run() -> Iterator[Figure]:
    with use_temporary_data():
        from orchestrator.events.search_text import event_words
        from orchestrator.events.services import NewEvent, append, create_stream
        from orchestrator.projects.models import User
        from orchestrator.projects.services import create_project

        user = User.objects.create_user("bench")
        project = create_project(actor=user, name="Bench")
        stream = create_stream(project=project, kind="rollout")
        draw = random.Random(SEED)
        vocabulary = [f"w{draw.randrange(36**4):x}" for _ in range(20_000)]
        took_s: dict[bool, list[float]] = {True: [], False: []}
        cpu_s: dict[bool, list[float]] = {True: [], False: []}

        def no_words(kind: str, payload: Any) -> list[str]:
            return []

        for number in range(BATCHES):
            is_indexed = number % 2 == 0
            items = [
                NewEvent("observation", {"text": _text(draw, vocabulary)}) for _ in range(EVENTS)
            ]
            chosen = event_words if is_indexed else no_words
            with mock.patch("orchestrator.events.services.event_words", chosen):
                started_s, before_s = time.monotonic(), time.process_time()
                append(stream_id=stream.pk, items=items)
                took_s[is_indexed].append(time.monotonic() - started_s)
                cpu_s[is_indexed].append(time.process_time() - before_s)
    yield Figure("indexing.load_of_the_machine", os.getloadavg()[0], None)
    for is_indexed, word in ((True, "with"), (False, "without")):
        name = f"indexing.append_of_{EVENTS}_{word}_index"
        yield Figure(f"{name}_median_ms", 1_000 * median(took_s[is_indexed]), None)
        yield Figure(f"{name}_cpu_median_ms", 1_000 * median(cpu_s[is_indexed]), None)
    share = 1 - median(cpu_s[False]) / median(cpu_s[True])
    yield Figure("indexing.share_of_append", share, None)


def _text(draw: random.Random, vocabulary: list[str]) -> str:
    words: list[str] = []
    size = 0
    while size < CHARACTERS:
        words.append(draw.choice(vocabulary))
        size += len(words[-1]) + 1
    return " ".join(words)
