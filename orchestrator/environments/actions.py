"""The local check of actions against a server's schema.

A server answers VALIDATION_ERROR both for an action that does not fit and for a fault of its own
code. So actions are checked here first: refused here means that the policy should try again,
refused there although it fits means that the environment is broken.

A schema is fetched once per server and kept for five minutes. A server without one (or with one
that is not a JSON schema, or too large to be one) gets no local check.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing.exceptions import Unresolvable

from orchestrator.environments.connection import Address, plain
from orchestrator.environments.errors import ActionRejectedError

LIST_TOOLS = {"type": "list_tools"}
KEEP_S = 300.0
MAX_KEPT = 256
MAX_SCHEMA_BYTES = 4 * 2**20
"""Somebody else's server says how long its answer is."""
_PLAIN_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "$defs"}
)
_PLAIN_FIELD_WORDS = frozenset({"type", "title", "description", "default", "examples"})
_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
}
_kept: dict[str, tuple[float, ActionSchema | None]] = {}


@dataclass(frozen=True)
class ActionSchema:
    """What a server accepts as an action."""

    schema: Mapping[str, Any]

    @cached_property
    def _validator(self) -> Draft202012Validator:
        # Making one costs as much as a whole step of a small environment.
        return Draft202012Validator(self.schema)

    @cached_property
    def _plain_fields(self) -> dict[str, frozenset[type]] | None:
        """Types of the fields of a schema that says no more than these, of the fields that say no
        more than a type; None for any other schema.
        """
        schema = self.schema
        if schema.get("type") != "object" or set(schema) - _PLAIN_WORDS:
            return None
        if schema.get("additionalProperties") is not False:
            return None
        return {
            name: _TYPES[about["type"]]
            for name, about in (schema.get("properties") or {}).items()
            if isinstance(about, Mapping)
            and not set(about) - _PLAIN_FIELD_WORDS
            and about.get("type") in _TYPES
        }

    def _fits_at_a_glance(self, action: object) -> bool:
        """True for sure; False only means that the validator has to be asked."""
        fields = self._plain_fields
        return (
            fields is not None
            and isinstance(action, dict)
            and all(type(value) in fields.get(name, ()) for name, value in action.items())
            and all(name in action for name in self.schema.get("required", ()))
        )

    def check(self, action: object) -> None:
        """`ActionRejectedError` names the field and what is wrong with it."""
        # MCP servers accept the listing of tools, which their schema does not describe.
        if action == LIST_TOOLS:
            return
        if self._fits_at_a_glance(action):
            return
        error = self._worst(action)
        if error is None:
            return
        if error.validator == "additionalProperties" and isinstance(action, dict):
            unknown = sorted(set(action) - set(self.schema.get("properties", {})))
            raise ActionRejectedError(f"{plain(', '.join(map(str, unknown)), 100)}: not allowed")
        where = ".".join(str(part) for part in error.absolute_path) or "action"
        raise ActionRejectedError(f"{plain(where, 100)}: {_reason(error.validator, error.message)}")

    def _worst(self, action: object) -> ValidationError | None:
        """None also where the schema turns out to be none: references that lead nowhere or in
        circles are found out when they are needed.
        """
        try:
            found: ValidationError | None = best_match(self._validator.iter_errors(action))
        except (Unresolvable, RecursionError):
            return None
        return found


class Malformed(str):
    """A text that was meant as an action and is none, with the reason for whoever wrote it."""

    reason: str

    def __new__(cls, text: str, reason: str) -> Malformed:
        made = super().__new__(cls, text)
        made.reason = plain(reason, 300)
        return made


def takes_tool_calls(schema: Mapping[str, Any] | None) -> bool:
    """Whether it is the schema of a server of MCP tools."""
    fields = (schema or {}).get("properties")
    about = fields.get("type") if isinstance(fields, Mapping) else None
    return isinstance(about, Mapping) and about.get("const") == "call_tool"


def _reason(rule: object, message: str) -> str:
    # jsonschema quotes the value, which can be a model's whole reply.
    return {
        "minLength": "is empty or too short",
        "maxLength": "is too long",
        "pattern": "has characters that are not allowed",
        "oneOf": "give exactly one of the alternatives",
    }.get(str(rule), plain(message, 200))


async def action_schema(
    address: Address, *, timeout_s: float, headers: Mapping[str, str] | None = None
) -> ActionSchema | None:
    """The server's schema for actions, or None if it publishes none that can be used."""
    kept_at, schema = _kept.get(address.base_url, (-KEEP_S, None))
    if time.monotonic() - kept_at < KEEP_S:
        return schema
    transport = httpx.AsyncHTTPTransport(uds=address.socket_path) if address.socket_path else None
    try:
        async with httpx.AsyncClient(
            transport=transport,
            timeout=timeout_s,
            headers=dict(headers or {}),
            trust_env=not address.is_loopback,
        ) as client:
            content = await _content(client, f"{address.http_url}/schema")
        published = json.loads(content)["action"]
        Draft202012Validator.check_schema(published or {})
    except (httpx.HTTPError, httpx.InvalidURL):
        # Not remembered: the next episode may find the server better.
        return None
    except (ValueError, KeyError, TypeError, SchemaError, RecursionError):
        published = None
    schema = ActionSchema(published) if isinstance(published, dict) else None
    _keep(address.base_url, schema)
    return schema


async def _content(client: httpx.AsyncClient, url: str) -> bytes:
    """The body of a good answer. `ValueError` for any other, and for one that is too large."""
    async with client.stream("GET", url) as reply:
        if not reply.is_success:
            raise ValueError(f"HTTP {reply.status_code}")
        content = bytearray()
        async for chunk in reply.aiter_bytes():
            content += chunk
            if len(content) > MAX_SCHEMA_BYTES:
                raise ValueError(f"more than {MAX_SCHEMA_BYTES} bytes")
    return bytes(content)


def _keep(base_url: str, schema: ActionSchema | None) -> None:
    """Servers for one episode come and go: what is old goes with them."""
    now = time.monotonic()
    if len(_kept) >= MAX_KEPT:
        for url in [url for url, (kept_at, _) in _kept.items() if now - kept_at >= KEEP_S]:
            _kept.pop(url, None)
        while len(_kept) >= MAX_KEPT:
            _kept.pop(next(iter(_kept)), None)
    _kept[base_url] = (now, schema)


def forget_schema(base_url: str) -> None:
    """For a server that was started again, perhaps with other code."""
    _kept.pop(base_url, None)
