"""The append-only log and its live feed.

A stream is one owner's log: a run, a rollout, a climb, a training job. An append is committed
before anything is acknowledged or shown; sequences are gapless and in commit order per stream.
The browser pulls what comes after the last sequence that it has; wake-ups only say: look again.

- `services`  create_stream, append, append_many; `Fence` and `LeaseLost` for writers of a job
- `queries`   events_after
- `consumers`, `feed`, `wakers`  the WebSocket side
"""
