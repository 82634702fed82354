"""The writer of `live`: appends single events at a fixed rate and notes when each was committed.

`python -m benchmarks.live_writer STREAM COUNT RATE_HZ`, one line `seq committed_at_s` per event.
"""

from __future__ import annotations

import sys
import time

import django

django.setup()

from orchestrator.events.services import NewEvent, append  # noqa: E402


def main(stream_id: int, count: int, rate_hz: float) -> None:
    committed: list[tuple[int, float]] = []
    started_s = time.monotonic()
    for index in range(count):
        due_s = started_s + index / rate_hz
        time.sleep(max(0.0, due_s - time.monotonic()))
        payload = {"text": "An observation of usual length. " * 8, "index": index}
        seq = append(stream_id=stream_id, items=[NewEvent("step", payload)])
        committed.append((seq, time.time()))
    for seq, at_s in committed:
        print(seq, at_s)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
