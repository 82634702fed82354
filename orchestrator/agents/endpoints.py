"""From a stored endpoint to where it answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from django.conf import settings
from django.db import connection

from orchestrator.agents.bridges import bridge_to
from orchestrator.agents.client import Endpoint
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobError
from orchestrator.projects.secrets import decrypt

log = structlog.get_logger(__name__)


def endpoint_of(model: ModelEndpoint, adapter_name: str = "", adapter_path: str = "") -> Endpoint:
    """Where it answers; of a Tinker endpoint, the bridge to it, started where there is none. Its
    adapter is on this host then, fetched if another host has it.

    Raises SecretUnreadable if its key cannot be decrypted, BridgeDown if the bridge does not start.
    """
    adapter_path = _fetched(adapter_path if adapter_name else model.adapter_path)
    if model.kind == EndpointKind.TINKER:
        return Endpoint(
            base_url=bridge_to(model),
            model=adapter_name or model.model,
            adapter_path=adapter_path,
        )
    is_ours = model.kind == EndpointKind.LOCAL and not model.base_url
    return Endpoint(
        base_url=f"http://127.0.0.1:{settings.MODEL_PORT}" if is_ours else model.base_url,
        model=adapter_name or model.model,
        adapter_path=adapter_path,
        api_key=decrypt(model.secret),
    )


def _fetched(path: str) -> str:
    """What cannot be fetched stays as it is: the model server says that it is not there."""
    if not path or sharing.here(path).exists():
        return str(sharing.here(path)) if path else ""
    try:
        # In a thread: callers may be in an event loop, where the database cannot be asked.
        with ThreadPoolExecutor(1) as pool:
            return str(pool.submit(_local, path).result())
    except (BlobError, OSError) as error:
        log.warning("adapter not fetched", path=path, error=str(error))
        return path


def _local(path: str) -> Path:
    try:
        return sharing.local(path)
    finally:
        connection.close()
