"""Reading environment variables: each value is parsed, an unknown one is refused, never ignored.

A secret may come from a file: `NAME_FILE` holds its path (for container secrets).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def env_bool(name: str, *, default: bool) -> bool:
    raw = os.environ.get(name)
    if raw is None:
        return default
    if raw.lower() in _TRUE:
        return True
    if raw.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r}: write true or false")


def env_int(name: str, *, default: int) -> int:
    raw = os.environ.get(name, "")
    try:
        return int(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r}: write a whole number") from None


def env_seconds(name: str, *, default: float) -> float:
    raw = os.environ.get(name, "")
    try:
        seconds = float(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r}: write a number of seconds") from None
    if not 0 < seconds < float("inf"):
        raise ImproperlyConfigured(f"{name}={raw!r}: write a positive number of seconds")
    return seconds


def env_choice(name: str, choices: Sequence[str]) -> str:
    """One of `choices`; the first where it is not set."""
    raw = os.environ.get(name, "") or choices[0]
    if raw not in choices:
        raise ImproperlyConfigured(f"{name}={raw!r}: write one of {', '.join(choices)}")
    return raw


def env_list(name: str, *, default: list[str]) -> list[str]:
    raw = os.environ.get(name)
    return default if raw is None else [part.strip() for part in raw.split(",") if part.strip()]


def env_secret(name: str) -> str | None:
    """The value of `name`, or of the file that `name`_FILE points to; None if neither is set."""
    if value := os.environ.get(name):
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE={path!r} cannot be read: {error}") from error


def kept_secret(path: Path) -> str:
    """The secret stored in `path`; made once (mode 0600) where it is missing.

    Safe when several processes start at once: the first to link its file wins, the others read it.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(50))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    secret = path.read_text(encoding="utf-8").strip()
    if len(secret) < 32:
        raise ImproperlyConfigured(f"{path} holds no usable secret: delete it to have one made")
    return secret


def postgres_options(url: str, *, pool_size: int) -> dict[str, Any]:
    """A `DATABASES` entry for `postgresql://user:password@host:port/name?option=value`.

    `host` may also be given as the option `host` (a socket directory).
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"} or not parts.path.strip("/"):
        raise ImproperlyConfigured(
            "DATABASE_URL must look like postgresql://user:password@host:5432/name"
        )
    query = dict(parse_qsl(parts.query))
    host = query.pop("host", None) or unquote(parts.hostname or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": query.pop("port", None) or str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {**query, "pool": {"min_size": 1, "max_size": pool_size, "timeout": 20}},
    }
