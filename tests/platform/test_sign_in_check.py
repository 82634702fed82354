"""A provider that anybody on the way could speak for is refused at the start."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.checks import check_sign_in_provider


@pytest.mark.parametrize(
    ("issuer", "ids"),
    [
        ("", []),
        ("https://id.example.org/realms/team", []),
        ("http://127.0.0.1:8080", []),
        ("http://id.example.org", ["switchback.E011"]),
        ("id.example.org", ["switchback.E011"]),
    ],
)
def test_an_issuer_is_https_or_here(settings: Any, issuer: str, ids: list[str]) -> None:
    settings.OIDC_ISSUER = issuer
    assert [message.id for message in check_sign_in_provider()] == ids
