"""The Tinker protocol from both sides, on a toy: its exact routes, and what a call costs.

- Gradients: routes A, C and D through the SDK and our server, against one another and against the
  local backend, on rows whose sampler had other weights; the largest relative difference.
- A call: a forward pass through SDK and server less the same pass in the server's engine, medians
  in turns; processor time of both sides together, and wall time, which other work stretches.
- The probe: wall time that a job spends on it before it trains.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.training.part import begin, report
from tests.training.builders import make_step
from training.backends.local import LocalSession, ModelSpec
from training.backends.tinker import TinkerSession, TinkerSpec
from training.lora import LoraSpec
from training.losses import build_streams
from training.prepare import make_tiny
from training.tinker.conformance import probe
from training.tinker.connection import finish, service_of
from training.tinker.engine import Datum, Engine
from training.tinker.server import TinkerServer
from training.types import ObjectiveSpec, Row

ECHO = ObjectiveSpec(lambda_env=0.3)
CALLS = 40
RANK, SEED = 4, 5


def main() -> None:
    """All figures."""
    begin()
    os.environ["TINKER_TELEMETRY"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny(Path(folder) / "tiny")
        with TinkerServer(Engine(model)) as server:
            _gradients(server, model)
            _call(server)
            started = time.perf_counter()
            service = service_of(server.url, "")
            probe(service, "tiny")
            finish(service)
            report("tinker.probe_s", time.perf_counter() - started)


def _gradients(server: TinkerServer, model: Path) -> None:
    rows = [_off_policy(row) for row in make_step(seed=1)]
    streams = build_streams(rows, ECHO)
    # The server's alpha is 32, and equal seeds give equal adapters.
    local = LocalSession(ModelSpec(model, LoraSpec(rank=RANK, alpha=32.0, seed=SEED)))
    local.forward_backward(rows, streams, ECHO).result()
    wanted = _flat(local.parameters)
    found = []
    for route in "ACD":
        session = _session(server, route)
        session.forward_backward(rows, streams, ECHO).result()
        found.append(_flat(list(server.engine.trainings.values())[-1].parameters))
        session.close()
    among = max(float((each - found[0]).norm() / wanted.norm()) for each in found)
    report("tinker.routes_difference", among, 1e-6)
    to_local = max(float((each - wanted).norm() / wanted.norm()) for each in found)
    report("tinker.local_difference", to_local, 1e-5)


def _call(server: TinkerServer) -> None:
    rows = make_step(seed=2)[:1]
    session = _session(server, "A")
    training = list(server.engine.trainings.values())[-1]
    ids = rows[0].ids
    inputs = {"target_tokens": tuple(map(float, ids[1:])), "weights": (1.0,) * (len(ids) - 1)}
    datum = Datum(ids[:-1], inputs)

    def there() -> None:
        session.forward(rows, temperature=1.0).result()

    def here() -> None:
        server.engine.forward_backward(training, [datum], "cross_entropy", {}, is_forward_only=True)

    remote, own = [], []
    for _ in range(CALLS):
        remote.append(_seconds(there))
        own.append(_seconds(here))
    for name, index, bar in (("cpu", 0, 10.0), ("wall", 1, None)):
        medians = [statistics.median(each[index] for each in found) for found in (remote, own)]
        report(f"tinker.call_overhead_{name}_ms", 1000 * (medians[0] - medians[1]), bar)
    session.close()


def _session(server: TinkerServer, route: str) -> TinkerSession:
    spec = TinkerSpec(server.url, "", "tiny", RANK, SEED, "bench", route=route, timeout_s=120.0)
    return TinkerSession(spec)


def _off_policy(row: Row) -> Row:
    logprobs = tuple(
        -5.5 + 0.4 * ((i * 7) % 5 - 2) if kind == "action" else 0.0
        for i, kind in enumerate(row.kinds)
    )
    return replace(row, logprobs=logprobs)


def _flat(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


def _seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Of the processor, all threads, and of the wall."""
    started = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - started[0], time.perf_counter() - started[1]


if __name__ == "__main__":
    main()
