"""Secrets at rest: under which key they are read, and that keys change without losing them."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.models import ModelEndpoint
from orchestrator.projects.secrets import SecretUnreadable, decrypt, encrypt, rotated
from orchestrator.webhooks.models import Webhook
from tests.base import People

OLD, NEW = "the old key " * 4, "the new key " * 4


def test_a_secret_is_read_under_the_key_before_and_written_under_the_new(settings: object) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []  # type: ignore[attr-defined]
    kept = encrypt("canary-1")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]  # type: ignore[attr-defined]
    assert decrypt(kept) == "canary-1"
    fresh = rotated(kept)
    settings.SECRET_KEY_FALLBACKS = []  # type: ignore[attr-defined]
    assert decrypt(fresh) == "canary-1"
    with pytest.raises(SecretUnreadable, match="SECRET_KEY_PREVIOUS"):
        decrypt(kept)
    with pytest.raises(SecretUnreadable):
        rotated(kept)


def test_nothing_stays_nothing() -> None:
    assert (encrypt(""), decrypt(""), rotated("")) == ("", "", "")


def test_all_secrets_go_under_the_new_key(people: People, settings: object) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []  # type: ignore[attr-defined]
    for name in ("one", "two"):
        ModelEndpoint.objects.create(
            project=people.project,
            name=name,
            base_url="http://127.0.0.1:9/v1",
            model="m",
            secret=encrypt(f"canary-{name}"),
        )
    hook = Webhook.objects.create(
        project=people.project, url="https://example.com/hook", secret=encrypt("canary-hook")
    )
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]  # type: ignore[attr-defined]
    call_command("rotate_secrets")
    settings.SECRET_KEY_FALLBACKS = []  # type: ignore[attr-defined]
    keys = {endpoint_of(one).api_key for one in ModelEndpoint.objects.all()}
    assert keys == {"canary-one", "canary-two"}
    hook.refresh_from_db()
    assert decrypt(hook.secret) == "canary-hook"
    settings.SECRET_KEY = OLD  # type: ignore[attr-defined]
    with pytest.raises(
        CommandError, match=r"3 cannot be read.*webhook to https://example\.com/hook"
    ):
        call_command("rotate_secrets")
