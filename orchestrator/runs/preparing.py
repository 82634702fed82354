"""What a run's event loop needs, read from the database before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from optimizer.store import load_harness
from orchestrator.agents.client import Endpoint
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.agents.types import Sampling
from orchestrator.environments.serving import episode_settings, kind_of
from orchestrator.runs.conditions import Remarks
from orchestrator.runs.models import ATTEMPTED_AGAIN, Purpose, Rollout, Run
from orchestrator.runs.rollout import RolloutPlan
from rubrics.codec import from_json


@dataclass(frozen=True)
class Prepared:
    """What the loop needs, so that it never touches the database itself."""

    run: Run
    endpoints: Mapping[int, Endpoint]
    """By model: the run's, and those that harnesses name."""
    plans: Sequence[RolloutPlan]
    samplings: Mapping[int, Sampling]
    """By harness version."""
    remarks: Remarks


def prepare(run: Run) -> Prepared:
    """Reads the open rollouts with everything that they need.

    `ValueError` that names the field, for limits that cannot be used and models that do not exist.
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
    remarks = Remarks(run)
    models = {pk: _model_of(run, versions[pk], harnesses[pk], remarks) for pk in harnesses}
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
            model=models[rollout.harness_id],
        )
        for rollout in rollouts
    ]
    # Before the endpoints: one of another server may need a process, and a refusal needs none.
    samplings = {
        pk: _sampling(run, versions[pk], harnesses[pk], models[pk], remarks) for pk in harnesses
    }
    return Prepared(
        run=run,
        endpoints={
            model.pk: endpoint_of(model, run.adapter_name, run.adapter_path)
            if model.pk == run.model_id
            else endpoint_of(model)
            for model in models.values()
        },
        plans=plans,
        samplings=samplings,
        remarks=remarks,
    )


def _model_of(
    run: Run, version: HarnessVersion, harness: Harness, remarks: Remarks
) -> ModelEndpoint:
    """The project's model of the name that the harness gives, else the run's."""
    if not harness.model or harness.model == run.model.name:
        return run.model
    if run.adapter_name or run.purpose == Purpose.TRAIN:
        remarks.add(
            "harness.model",
            f"{version.short} names the model {harness.model!r:.80}; this run is about the weights "
            f"of {run.model.name}{f' ({run.adapter_name})' if run.adapter_name else ''}, so that "
            "was asked.",
        )
        return run.model
    models = {model.name: model for model in ModelEndpoint.objects.filter(project=run.project_id)}
    if harness.model not in models:
        raise ValueError(
            f"harness {version.short}: harness.yaml: model {harness.model!r:.80} is not a model of "
            f"this project; it has {', '.join(sorted(models))}. Add it in Settings, Models, or "
            "leave the field empty to use the run's."
        )
    remarks.add(
        "harness.model",
        f"{version.short} names its model: {harness.model} was asked, not the run's.",
    )
    return models[harness.model]


def _sampling(
    run: Run,
    version: HarnessVersion,
    harness: Harness,
    model: ModelEndpoint,
    remarks: Remarks,
) -> Sampling:
    values = {
        "temperature": harness.sampling.temperature,
        "max_tokens": harness.sampling.max_tokens,
        "stop": tuple(harness.sampling.stop),
        "top_p": harness.sampling.top_p,
        **run.sampling,
    }
    if model.gives_tokens and values["top_p"] != 1:
        # It would change the distribution without a trace in the log-probabilities.
        remarks.add(
            "harness.top_p",
            f"{version.short} sets sampling.top_p to {values['top_p']:g}; the model server of "
            "Switchback samples from the whole distribution, so it was not applied.",
        )
        values["top_p"] = 1.0
    if model.kind == EndpointKind.TINKER and values["temperature"] not in (0, 1):
        raise ValueError(
            f"harness {version.short}: temperature {values['temperature']:g}, but {model.name} is "
            "on a Tinker server, whose log-probabilities are those at 1: sample at 1, or at 0."
        )
    return Sampling(
        temperature=float(values["temperature"]),
        max_tokens=int(values["max_tokens"]),
        stop=tuple(values["stop"]),
        top_p=float(values["top_p"]),
    )
