"""What changes model endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from django.db.models import ProtectedError

from orchestrator.agents.client import Endpoint
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.agents.probe import probe_endpoint, probe_tinker
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.projects.secrets import encrypt


class EndpointRefused(ValueError):
    """An endpoint cannot be kept or removed; `field` is the form's."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class NewEndpoint:
    """An endpoint of another server as a person describes it."""

    name: str
    base_url: str
    """With or without a final `/v1`."""
    model: str
    api_key: str = ""
    kind: str = EndpointKind.OPENAI
    """Of `EndpointKind`: OPENAI or TINKER."""
    tokenizer_path: str = ""
    """Of a Tinker endpoint; empty: of this installation's model."""
    price_in_usd_per_mtok: float = 0.0
    price_out_usd_per_mtok: float = 0.0


def add_endpoint(*, actor: User, project: Project, new: NewEndpoint) -> ModelEndpoint:
    """Keeps an endpoint that has answered; its key encrypted.

    Raises:
        EndpointRefused: the name is taken, or the endpoint gives no answer; says which field.
    """
    require(actor, project, Role.EDITOR)
    base_url = new.base_url.strip().rstrip("/").removesuffix("/v1")
    if not base_url.startswith(("http://", "https://")):
        raise EndpointRefused("base_url", "The address begins with http:// or https://.")
    if ModelEndpoint.objects.filter(project=project, name=new.name).exists():
        raise EndpointRefused("name", f"The project already has a model named {new.name}.")
    if new.kind == EndpointKind.TINKER:
        _check_tokenizer(new)
        result = probe_tinker(base_url, new.model, new.api_key)
    else:
        result = probe_endpoint(Endpoint(base_url, new.model, api_key=new.api_key))
    if not result.is_usable:
        raise EndpointRefused("base_url", result.message)
    return ModelEndpoint.objects.create(
        project=project,
        name=new.name,
        kind=new.kind,
        tokenizer_path=new.tokenizer_path if new.kind == EndpointKind.TINKER else "",
        base_url=base_url,
        model=new.model,
        secret=encrypt(new.api_key),
        price_in_usd_per_mtok=new.price_in_usd_per_mtok,
        price_out_usd_per_mtok=new.price_out_usd_per_mtok,
    )


def _check_tokenizer(new: NewEndpoint) -> None:
    folder = Path(new.tokenizer_path or settings.MODEL_DIR)
    missing = [n for n in ("tokenizer.json", "config.json") if not (folder / n).is_file()]
    if missing:
        raise EndpointRefused("tokenizer_path", f"{folder} has no {' and no '.join(missing)}.")


def add_bundled_endpoint(*, actor: User, project: Project, model: str) -> ModelEndpoint:
    """The model server of this installation. Safe to call twice."""
    require(actor, project, Role.EDITOR)
    endpoint, _ = ModelEndpoint.objects.get_or_create(
        project=project, name=model, defaults={"kind": EndpointKind.LOCAL, "model": model}
    )
    return endpoint


def remove_endpoint(*, actor: User, endpoint: ModelEndpoint) -> None:
    """Raises EndpointRefused while runs name it: their record must stay whole."""
    require(actor, endpoint.project, Role.EDITOR)
    try:
        endpoint.delete()
    except ProtectedError:
        raise EndpointRefused(
            "name", f"{endpoint.name} stays: runs were made with it, and their record names it."
        ) from None


def choose_judge(*, actor: User, endpoint: ModelEndpoint, is_judge: bool) -> None:
    """Makes it the one that criteria ask which name no model, or no longer."""
    require(actor, endpoint.project, Role.EDITOR)
    with transaction.atomic():
        ModelEndpoint.objects.filter(project=endpoint.project, is_judge=True).update(is_judge=False)
        if is_judge:
            ModelEndpoint.objects.filter(pk=endpoint.pk).update(is_judge=True)


def remember_tool_support(*, model: ModelEndpoint, takes_tools: bool) -> None:
    """What a run has found out, unless a person has said otherwise meanwhile."""
    try:
        ModelEndpoint.objects.filter(pk=model.pk, supports_tools__isnull=True).update(
            supports_tools=takes_tools
        )
    finally:
        connection.close()  # of a thread that ends
