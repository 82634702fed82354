from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from orchestrator.envvars import env_bool, env_int, env_seconds, env_secret, kept_secret
from orchestrator.envvars import postgres_options as options


def test_a_typing_error_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, read in (
        ("ture", lambda: env_bool("X_VALUE", default=False)),
        ("12a", lambda: env_int("X_VALUE", default=1)),
        ("-3", lambda: env_seconds("X_VALUE", default=1)),
        ("nan", lambda: env_seconds("X_VALUE", default=1)),
    ):
        monkeypatch.setenv("X_VALUE", value)
        with pytest.raises(ImproperlyConfigured, match="X_VALUE"):
            read()


def test_a_secret_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    monkeypatch.setenv("X_KEY_FILE", str(tmp_path / "key"))
    assert env_secret("X_KEY") == "s3cret"
    monkeypatch.setenv("X_KEY_FILE", str(tmp_path / "missing"))
    with pytest.raises(ImproperlyConfigured, match="X_KEY_FILE"):
        env_secret("X_KEY")


def test_a_kept_secret_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "secret_key"
    first = kept_secret(path)
    assert kept_secret(path) == first
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["secret_key"]


def test_an_emptied_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("")
    with pytest.raises(ImproperlyConfigured, match="delete it"):
        kept_secret(tmp_path / "secret_key")


def test_a_database_url_is_taken_apart() -> None:
    parsed = options("postgresql://me:p%40ss@db:5433/hill?sslmode=require", pool_size=4)
    assert (parsed["NAME"], parsed["USER"], parsed["PASSWORD"]) == ("hill", "me", "p@ss")
    assert (parsed["HOST"], parsed["PORT"]) == ("db", "5433")
    assert parsed["OPTIONS"]["sslmode"] == "require"
    assert parsed["OPTIONS"]["pool"]["max_size"] == 4
    assert options("postgresql:///hill?host=/run/pg", pool_size=1)["HOST"] == "/run/pg"
    with pytest.raises(ImproperlyConfigured, match="postgresql://"):
        options("mysql://db/hill", pool_size=1)
