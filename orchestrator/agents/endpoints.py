"""From a stored endpoint to where it answers."""

from __future__ import annotations

from django.conf import settings

from orchestrator.agents.bridges import bridge_to
from orchestrator.agents.client import Endpoint
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.projects.secrets import decrypt


def endpoint_of(model: ModelEndpoint, adapter_name: str = "", adapter_path: str = "") -> Endpoint:
    """Where it answers; of a Tinker endpoint, the bridge to it, started where there is none.

    Raises SecretUnreadable if its key cannot be decrypted, BridgeDown if the bridge does not start.
    """
    if model.kind == EndpointKind.TINKER:
        return Endpoint(
            base_url=bridge_to(model),
            model=adapter_name or model.model,
            adapter_path=adapter_path if adapter_name else model.adapter_path,
        )
    is_ours = model.kind == EndpointKind.LOCAL and not model.base_url
    return Endpoint(
        base_url=f"http://127.0.0.1:{settings.MODEL_PORT}" if is_ours else model.base_url,
        model=adapter_name or model.model,
        adapter_path=adapter_path if adapter_name else model.adapter_path,
        api_key=decrypt(model.secret),
    )
