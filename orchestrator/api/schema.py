"""The OpenAPI document: names of operations, and the errors that all of them may answer."""

from __future__ import annotations

import re
from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from orchestrator.api.problems import CONTENT_TYPE
from orchestrator.api.shapes import Problem, schema_of

ALWAYS = {
    "401": "No token, or one that is unknown, revoked or expired; or not signed in.",
    "403": "The role in the project, or the scopes of the token, do not allow it.",
    "404": "There is no such object, or it is in a project that the caller does not belong to.",
    "429": "Too many requests; `Retry-After` says when to go on.",
    "503": "Others are writing and nothing was done; `Retry-After` says when to send it again.",
}
READS = {"400": "A parameter is not understood; `errors` names it."}
CHANGES = {
    "400": "The body or a parameter is not valid; `errors` names the fields.",
    "409": "It does not fit the present state, or the Idempotency-Key was used before.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "Understood, and refused; `detail` says why and what can be done.",
}
EDITS = {
    "412": "It has changed since it was read.",
    "428": "`If-Match` is missing.",
}


class Schema(AutoSchema):
    def get_operation_id(self) -> str:
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", type(self.view).__name__).lower()
        # Several addresses may share a view: the last word of the address tells them apart.
        action = self.path.rpartition("/")[2] if hasattr(self.view, "actions") else ""
        return f"{self.method.lower()}_{words}{action and f'_{action}'}"

    def get_tags(self) -> list[str]:
        return [type(self.view).__module__.rpartition(".")[2]]

    def _get_response_bodies(
        self, direction: Literal["request", "response"] = "response"
    ) -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        errors = {**ALWAYS, **(READS if self.method == "GET" else CHANGES)}
        if any(p["name"] == "If-Match" for p in self._get_parameters()):
            errors |= EDITS
        for status, description in errors.items():
            bodies.setdefault(
                status,
                {
                    "content": {CONTENT_TYPE: {"schema": schema_of(Problem)}},
                    "description": description,
                },
            )
        return bodies


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call] # registers itself
    target_class = "orchestrator.projects.authentication.ApiTokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of the project's settings: `Authorization: Bearer swb_…`.",
        }
