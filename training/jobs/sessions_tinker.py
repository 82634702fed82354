"""Opens the session of a job whose backend is `tinker`: the probe first, then the route.

The verdict of the probe and the route are written into the job's folder and told as an event
before anything is trained, also when they refuse. The key comes by the environment alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from training.backends.tinker import TinkerSession, TinkerSpec
from training.errors import ConfigurationError
from training.jobs.events import EventLog
from training.jobs.folder import JobFolder, write_json
from training.manifest import Manifest
from training.tinker.conformance import Conformance, probe
from training.tinker.connection import finish, service_of
from training.tinker.routes import Chosen, choose

KEY_VARIABLE = "TINKER_API_KEY"
VERDICT_FILE = "conformance.json"


def open_session(
    job: JobFolder, manifest: Manifest, events: EventLog, on_wait: Callable[[], None]
) -> TinkerSession:
    """Raises ConfigurationError where the server computes something else than ECHO, and
    RemoteError where it does not answer."""
    part = manifest.tinker
    assert part is not None and manifest.lora is not None  # by Manifest.validate
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    key = os.environ.get(KEY_VARIABLE, "")
    service = service_of(part.base_url, key, on_wait=on_wait)
    try:
        found = probe(service, part.model, timeout_s=part.timeout_s, on_wait=on_wait)
    finally:
        finish(service)
    chosen = choose(
        manifest.objective,
        allowed=found.routes,
        refused=found.refused,
        honours_thresholds=found.honours_thresholds,
        is_on_policy=_is_on_policy(manifest),
    )
    refusal = found.refusal(clip_norm=manifest.optimiser.clip_norm) or chosen.refusal
    verdict = _verdict(part.base_url, part.model, found, chosen, refusal)
    write_json(job.path / VERDICT_FILE, verdict)
    events.append("connected", verdict)
    if refusal:
        raise ConfigurationError(f"{part.base_url}: {refusal}")
    return TinkerSession(
        TinkerSpec(
            base_url=part.base_url,
            api_key=key,
            model=part.model,
            rank=manifest.lora.rank,
            seed=manifest.seed,
            name=f"switchback-{manifest.sha256[:12]}",
            route=chosen.route,
            timeout_s=part.timeout_s,
        ),
        on_wait=on_wait,
    )


def _is_on_policy(manifest: Manifest) -> bool:
    return manifest.batch.max_staleness == 0 and manifest.batch.updates_per_step == 1


def _verdict(
    base_url: str, model: str, found: Conformance, chosen: Chosen, refusal: str
) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "model": model,
        "route": "" if refusal else chosen.route,
        "refusal": refusal,
        "passed_over": dict(chosen.passed_over),
        "found": found.to_json(),
    }
