"""What a run's event loop needs, read from the database before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.models import HarnessVersion
from optimizer.store import load_harness
from orchestrator.agents.client import Endpoint
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.models import EndpointKind
from orchestrator.agents.types import Sampling
from orchestrator.environments.serving import episode_settings, kind_of
from orchestrator.runs.models import ATTEMPTED_AGAIN, Rollout, Run
from orchestrator.runs.rollout import RolloutPlan
from rubrics.codec import from_json


@dataclass(frozen=True)
class Prepared:
    """What the loop needs, so that it never touches the database itself."""

    run: Run
    endpoint: Endpoint
    is_token_exact: bool
    plans: Sequence[RolloutPlan]
    samplings: Mapping[int, Sampling]
    """By harness version."""


def prepare(run: Run) -> Prepared:
    """Reads the open rollouts with everything that they need.

    `ValueError` that names the field, for limits that cannot be used.
    """
    rollouts = list(
        Rollout.objects.filter(run=run, state__in=ATTEMPTED_AGAIN)
        .select_related("task", "harness", "retry_of")
        .order_by("replicate", "id")
    )
    for rollout in rollouts:
        rollout.run = run
    versions = {r.harness_id: r.harness for r in rollouts}
    harnesses = {pk: load_harness(version) for pk, version in versions.items()}
    rubric = from_json(run.rubric_version.spec)
    kind = kind_of(run.environment_version)
    plans = [
        RolloutPlan(
            rollout=rollout,
            harness=harnesses[rollout.harness_id],
            description=run.environment_version.description,
            settings=episode_settings(
                run.environment_version,
                max_steps=harnesses[rollout.harness_id].limits.max_steps,
                limits=rollout.task.limits,
            ),
            kind=kind,
            rubric=rubric,
            price_in=run.model.price_in_usd_per_mtok,
            price_out=run.model.price_out_usd_per_mtok,
        )
        for rollout in rollouts
    ]
    return Prepared(
        run=run,
        endpoint=endpoint_of(run.model, run.adapter_name, run.adapter_path),
        is_token_exact=run.model.kind == EndpointKind.LOCAL,
        plans=plans,
        samplings={pk: _sampling(run, versions[pk], harnesses[pk]) for pk in harnesses},
    )


def _sampling(run: Run, version: HarnessVersion, harness: Any) -> Sampling:
    values = {
        "temperature": harness.sampling.temperature,
        "max_tokens": harness.sampling.max_tokens,
        "stop": tuple(harness.sampling.stop),
        **run.sampling,
    }
    return Sampling(
        temperature=float(values["temperature"]),
        max_tokens=int(values["max_tokens"]),
        stop=tuple(values["stop"]),
    )
