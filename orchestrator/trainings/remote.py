"""Trainings on a Tinker-protocol server: the key for their trainer, and where their weights are."""

from __future__ import annotations

from typing import Any

from orchestrator.agents.bridges import KEY_VARIABLE
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.events.models import Event
from orchestrator.projects.secrets import decrypt
from orchestrator.trainings.errors import TrainingRefused
from training.models import Checkpoint, TrainingJob


def key_for(model: ModelEndpoint) -> dict[str, str]:
    """The trainer's environment: the server's key, which stands in no manifest.

    Raises SecretUnreadable.
    """
    if model.kind != EndpointKind.TINKER or not model.secret:
        return {}
    return {KEY_VARIABLE: decrypt(model.secret)}


def where(job: TrainingJob) -> dict[str, Any]:
    """Fields of an endpoint for weights of the job: here, or on the server that keeps them.

    Raises TrainingRefused where the endpoint of that server is gone, and its key with it.
    """
    if not job.tinker_url:
        return {"kind": EndpointKind.LOCAL}
    if job.model is None:
        raise TrainingRefused(f"The endpoint of {job.tinker_url} is not in this project any more.")
    return {
        "kind": EndpointKind.TINKER,
        "base_url": job.tinker_url,
        "tokenizer_path": job.model.tokenizer_path,
        "secret": job.model.secret,
    }


def refuse_remote(checkpoint: Checkpoint, so: str) -> None:
    """Raises TrainingRefused for what needs the weights themselves."""
    job = checkpoint.training_job
    if job.tinker_url:
        raise TrainingRefused(
            f"The weights of step {checkpoint.step} are on {job.tinker_url}, so {so}. Promote the "
            "step: runs then sample it there."
        )


def connection_of(job: TrainingJob) -> dict[str, Any] | None:
    """What the probe found when the trainer last connected to its server."""
    if not job.tinker_url:
        return None
    told = Event.objects.filter(stream_id=job.stream_id, kind="train.connected").order_by("-seq")
    event = told.first()
    return None if event is None else {**event.payload, "at": event.at}
