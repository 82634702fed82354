"""A program that talks to the API with a token."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client
from django.urls import reverse

from orchestrator.projects.models import Project, Role, User
from orchestrator.projects.services import issue_token


@dataclass
class Program:
    secret: str
    client: Client = field(default_factory=Client)

    def get(self, name: str, *args: object, **query: Any) -> Any:
        return self.client.get(reverse(f"api:{name}", args=args), query, **self._token)

    def fetch(self, url: str, **headers: str) -> Any:
        return self.client.get(url, headers=headers, **self._token)

    def send(self, method: str, name: str, *args: object, body: Any = None, **headers: str) -> Any:
        return self.client.generic(
            method,
            reverse(f"api:{name}", args=args),
            json.dumps(body),
            content_type="application/json",
            headers={key.replace("_", "-"): value for key, value in headers.items()},
            **self._token,
        )

    def post(self, name: str, *args: object, body: Any = None, **headers: str) -> Any:
        return self.send("POST", name, *args, body=body, **headers)

    @property
    def _token(self) -> dict[str, Any]:
        return {"HTTP_AUTHORIZATION": f"Bearer {self.secret}"}


def program_of(
    user: User, project: Project, role: Role = Role.EDITOR, scopes: tuple[str, ...] = ()
) -> Program:
    issued = issue_token(actor=user, project_id=project.pk, name="t", role=role, scopes=scopes)
    return Program(issued.secret)


def problem_in(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["type"]) == (status, "about:blank")
    assert body["title"] and body["detail"]
    return body


def fields_of(problem: dict[str, Any]) -> list[str]:
    return [reason["field"] for reason in problem["errors"]]
